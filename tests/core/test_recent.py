"""What is kept for later follows what is asked for: weeks of new questions do not add up (F38)."""

from pykarpenter.core.recent import Recent


def ask(memo, key):
    """Whether the answer was there; it is afterwards."""
    found = memo.get(key)
    if found is None:
        memo.put(key, f"answer {key}")
        return False
    assert found == f"answer {key}"
    return True


def test_f38_what_nobody_asks_for_any_more_is_let_go():
    """A question that never comes again is forgotten after two generations, however many of them come."""
    memo = Recent(most=1000)
    for number in range(2000):
        ask(memo, number)
        if number % 10 == 9:
            memo.turn()
        assert len(memo) <= 20


def test_f38_what_is_asked_for_once_in_each_generation_stays():
    """A steady cluster finds its answers, whatever comes and goes beside it."""
    memo = Recent(most=1000)
    missed = 0
    for number in range(500):
        missed += sum(not ask(memo, f"steady {index}") for index in range(20))
        ask(memo, f"passing {number}")
        # Only what is in use is taken over, and the owner may let generations last as long as that needs.
        assert memo.turn() == (20 if number else 0)
    assert missed == 20


def test_f38_questions_that_are_all_new_hold_no_more_than_two_generations():
    """Nobody needs to say that a generation is over for the memory to be bounded."""
    memo = Recent(most=50)
    for number in range(500):
        assert not ask(memo, number)
        assert len(memo) <= 100
