"""Good rows of the tables of `benchmarks`, and changes that make them bad."""

from tasks.extensions.suites.tables import Answers, SuiteQuestions

GOOD = {
    SuiteQuestions: {
        "problem_id": "math500-0",
        "question": "How many?",
        "answer": "7",
        "level": "1",
        "subject": "",
        "choices": "",
        "readable": True,
    },
    Answers: {
        "problem_id": "math500-0",
        "temperature": 0.6,
        "sample": 2,
        "response": "So 7.",
        "extracted": "7",
        "right": True,
        "by_method": "",
        "length": 3,
        "ended": True,
    },
}
BAD = {
    SuiteQuestions: [({"answer": ""}, "answer"), ({"readable": "yes"}, "readable")],
    Answers: [({"temperature": -1.0}, "temperature"), ({"length": -1}, "length"), ({"right": None}, "right")],
}
