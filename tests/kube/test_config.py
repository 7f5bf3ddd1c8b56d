"""Finding the cluster: kubeconfigs as people have them, and the pod we run in."""

import asyncio
import base64
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pykarpenter.api.kinds import POD
from pykarpenter.kube.config import ConfigError, from_kubeconfig, in_cluster, load_config
from pykarpenter.kube.credentials import ClientCertificate, ExecCommand, Identity, Static, TokenFile
from pykarpenter.kube.errors import ServerFault
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.runtime.virtual_loop import run_virtual
from tests.kube.http_server import ok, serving

CLOCK = SystemClock()

BASIC = """
apiVersion: v1
kind: Config
current-context: prod
clusters:
- name: prod-cluster
  cluster: {server: "https://prod.example:6443/", insecure-skip-tls-verify: true}
- name: dev-cluster
  cluster: {server: "https://dev.example", tls-server-name: other, proxy-url: "http://proxy:3128"}
contexts:
- name: prod
  context: {cluster: prod-cluster, user: admin}
- name: dev
  context: {cluster: dev-cluster, user: robot, namespace: tools}
users:
- name: admin
  user: {token: 2026-01-01}
- name: robot
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: get-token, args: [-x], env: null}
"""


def written(tmp_path, text, name="config"):
    path = tmp_path / name
    path.write_text(text)
    return path


def identity(config):
    return asyncio.run(config.credentials.current())


def test_the_current_context_is_used_and_another_can_be_chosen(tmp_path):
    """What kubectl would talk to, unless told otherwise. A token that looks like a date stays text."""
    path = written(tmp_path, BASIC)
    config = from_kubeconfig([path], CLOCK)
    assert (config.server, config.verify, config.namespace) == ("https://prod.example:6443", False, "default")
    assert identity(config).token == "2026-01-01"
    config = from_kubeconfig([path], CLOCK, "dev")
    assert (config.server, config.verify, config.namespace) == ("https://dev.example", True, "tools")
    assert (config.tls_server_name, config.proxy_url) == ("other", "http://proxy:3128")
    assert isinstance(config.credentials, ExecCommand)


def test_a_list_of_kubeconfigs_is_merged_and_the_first_wins(tmp_path):
    """KUBECONFIG=a:b is how people combine clusters; missing files are skipped as kubectl does."""
    first = written(tmp_path, "current-context: dev\nusers:\n- name: admin\n  user: {token: mine}\n", "first")
    second = written(tmp_path, BASIC, "second")
    env = {"KUBECONFIG": f"{tmp_path / 'missing'}:{first}:{second}"}
    assert load_config(CLOCK, environ=env).server == "https://dev.example"
    config = load_config(CLOCK, environ=env, context="prod")
    assert identity(config).token == "mine"


def test_files_are_relative_to_the_kubeconfig_that_names_them(tmp_path):
    """kind, minikube and others write relative paths."""
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "ca.pem").write_text("CA TEXT")
    (folder / "token").write_text("from-file")
    text = (
        BASIC.replace("insecure-skip-tls-verify: true", "certificate-authority: ca.pem")
        .replace("token: 2026-01-01", "tokenFile: token")
    )  # fmt: skip
    config = from_kubeconfig([written(folder, text)], CLOCK)
    assert config.ca == "CA TEXT"
    assert isinstance(config.credentials, TokenFile)
    assert identity(config).token == "from-file"


def test_inline_certificates_win_over_files(tmp_path):
    """As in kubectl."""
    pair = {name: base64.b64encode(name.encode()).decode() for name in ("cert", "key")}
    text = BASIC.replace(
        "token: 2026-01-01",
        f"client-certificate-data: {pair['cert']}, client-certificate: nowhere, client-key-data: {pair['key']}",
    )
    config = from_kubeconfig([written(tmp_path, text)], CLOCK)
    assert identity(config).certificate == ClientCertificate("cert", "key")
    assert "key" not in repr(identity(config).certificate).replace("key=", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BASIC.replace("current-context: prod", ""), "current-context is not set"),
        (BASIC.replace("current-context: prod", "current-context: nope"), "contexts has no 'nope'.*prod, dev"),
        (BASIC.replace("cluster: prod-cluster,", "cluster: gone,"), "clusters has no 'gone', wanted by context 'prod'"),
        (BASIC.replace("token: 2026-01-01", "auth-provider: {name: gcp}"), "auth-provider 'gcp'.*exec"),
        (BASIC.replace("token: 2026-01-01", "client-certificate-data: '***'"), "client-certificate-data is not base64"),
        (BASIC.replace("token: 2026-01-01", "client-certificate: gone.pem"), "client-certificate .*gone.pem"),
        ("[1, 2", "not YAML"),
        ("- a list", "expected a mapping"),
    ],
)
def test_b37_broken_kubeconfigs_name_the_field_and_the_remedy(tmp_path, text, problem):
    """The first thing a user gets wrong should be the first thing they can fix."""
    with pytest.raises(ConfigError, match=problem):
        from_kubeconfig([written(tmp_path, text)], CLOCK)


def test_nothing_to_connect_to_says_what_to_set(tmp_path):
    """A bare `run` on a machine without a cluster."""
    with pytest.raises(ConfigError, match="KUBECONFIG"):
        load_config(CLOCK, environ={"HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(CLOCK, kubeconfig=str(tmp_path / "nope"), environ={})


def test_inside_a_pod_the_service_account_is_used(tmp_path):
    """IPv6 clusters included; the token is read anew as it rotates."""
    for name, text in (("ca.crt", "CA"), ("token", "tok"), ("namespace", "karpenter\n")):
        (tmp_path / name).write_text(text)
    config = in_cluster(CLOCK, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert (config.server, config.ca, config.namespace) == ("https://[fd00::1]:6443", "CA", "karpenter")
    assert identity(config).token == "tok"
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        in_cluster(CLOCK, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path / "nowhere")


def certificate(name, issuer=None, issuer_key=None, ca=False):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("api.example")]), critical=False)
    )
    return builder.sign(issuer_key or key, hashes.SHA256()), key


def pem(cert):
    return cert.public_bytes(serialization.Encoding.PEM).decode()


def key_pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def test_tls_checks_the_servers_name_and_shows_a_client_certificate(tmp_path):
    """Both sides prove who they are; a wrong name or a foreign CA is refused before anything is sent."""
    ca, ca_key = certificate("ca", ca=True)
    server, server_key = certificate("server", ca, ca_key)
    client, client_key = certificate("client", ca, ca_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        written(tmp_path, pem(server), "server.pem"), written(tmp_path, key_pem(server_key), "server.key")
    )
    context.load_verify_locations(cadata=pem(ca))
    context.verify_mode = ssl.CERT_REQUIRED
    me = Static(Identity("", ClientCertificate(pem(client), key_pem(client_key))))
    answer = ok({"metadata": {"name": "a", "namespace": "d"}})

    async def main():
        options = {"ssl_context": context, "credentials": me}
        async with serving(answer, **options, ca=pem(ca), tls_server_name="api.example") as (_, api):
            assert (await api.get(POD, "a", "d")).name == "a"
        for wrong in ({"tls_server_name": "other.example", "ca": pem(ca)}, {"tls_server_name": "api.example"}):
            async with serving(answer, **options, **wrong) as (server, api):
                with pytest.raises(ServerFault):
                    await api.get(POD, "a", "d")
                assert server.asked == []

    run_virtual(main())
