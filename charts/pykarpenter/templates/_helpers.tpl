{{- define "pykarpenter.name" -}}
{{- default "karpenter" .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "pykarpenter.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "pykarpenter.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "pykarpenter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "pykarpenter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pykarpenter.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "pykarpenter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pykarpenter.metadata" -}}
name: {{ include "pykarpenter.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "pykarpenter.labels" . | nindent 2 }}
{{- with .Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "pykarpenter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pykarpenter.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "pykarpenter.image" -}}
{{- $image := .Values.controller.image -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- with $image.digest -}}@{{ . }}{{- end -}}
{{- end -}}

{{- /* A gate's name is its value's name with a capital. */ -}}
{{- define "pykarpenter.featureGates" -}}
{{- $gates := list -}}
{{- range $name, $on := .Values.settings.featureGates -}}
{{- if not (kindIs "bool" $on) -}}
{{- fail (printf "settings.featureGates.%s: expected true or false, got %q" $name (toString $on)) -}}
{{- end -}}
{{- $gates = append $gates (printf "%s%s=%t" (substr 0 1 $name | upper) (substr 1 (len $name) $name) $on) -}}
{{- end -}}
{{- join "," $gates -}}
{{- end -}}

{{- define "pykarpenter.env" -}}
- name: PYKARPENTER_PROVIDER
  value: {{ .Values.provider | quote }}
- name: KARPENTER_SERVICE
  value: {{ include "pykarpenter.fullname" . | quote }}
- name: METRICS_PORT
  value: {{ .Values.controller.metrics.port | quote }}
- name: HEALTH_PROBE_PORT
  value: {{ .Values.controller.healthProbe.port | quote }}
- name: SYSTEM_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: "0"
      resource: limits.memory
- name: CPU_REQUESTS
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: 1m
      resource: requests.cpu
- name: LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
- name: LOG_OUTPUT_PATHS
  value: {{ join "," .Values.logOutputPaths | quote }}
- name: LOG_ERROR_OUTPUT_PATHS
  value: {{ join "," .Values.logErrorOutputPaths | quote }}
{{- with .Values.settings }}
- name: KUBE_CLIENT_QPS
  value: {{ .kubeClientQPS | quote }}
- name: KUBE_CLIENT_BURST
  value: {{ .kubeClientBurst | quote }}
- name: ENABLE_PROFILING
  value: {{ .enableProfiling | quote }}
- name: DISABLE_LEADER_ELECTION
  value: {{ .disableLeaderElection | quote }}
- name: LEADER_ELECTION_NAME
  value: {{ .leaderElectionName | quote }}
- name: LEADER_ELECTION_NAMESPACE
  value: {{ $.Release.Namespace | quote }}
- name: DISABLE_CLUSTER_STATE_OBSERVABILITY
  value: {{ .disableClusterStateObservability | quote }}
- name: BATCH_MAX_DURATION
  value: {{ .batchMaxDuration | quote }}
- name: BATCH_IDLE_DURATION
  value: {{ .batchIdleDuration | quote }}
- name: PREFERENCE_POLICY
  value: {{ .preferencePolicy | quote }}
- name: MIN_VALUES_POLICY
  value: {{ .minValuesPolicy | quote }}
- name: IGNORE_DRA_REQUESTS
  value: {{ .ignoreDRARequests | quote }}
- name: LEGACY_NODE_REPAIR
  value: {{ .legacyNodeRepair | quote }}
{{- with .schedulerConfig }}
- name: SCHEDULER_CONFIG
  value: {{ (kindIs "string" . | ternary . (toYaml .)) | quote }}
{{- end }}
- name: PACKING_EFFORT
  value: {{ .packingEffort | quote }}
- name: CROSS_POOL_COST
  value: {{ .crossPoolCost | quote }}
- name: CONSOLIDATION_SEARCH
  value: {{ .consolidationSearch | quote }}
- name: CONSOLIDATION_REPLACEMENTS
  value: {{ .consolidationReplacements | quote }}
- name: MIN_SAVING
  value: {{ .minSaving | quote }}
- name: EVICTION_PRICE
  value: {{ .evictionPrice | quote }}
- name: PROTECT_UNPARSABLE_DO_NOT_DISRUPT
  value: {{ .protectUnparsableDoNotDisrupt | quote }}
- name: NOMINATE_PODS
  value: {{ .nominatePods | quote }}
- name: DRY_RUN
  value: {{ .dryRun | quote }}
{{- if eq $.Values.provider "kwok" }}
- name: KWOK_KUBELETS
  value: {{ .kwokKubelets | quote }}
{{- end }}
{{- end }}
- name: FEATURE_GATES
  value: {{ include "pykarpenter.featureGates" . | quote }}
{{- end -}}
