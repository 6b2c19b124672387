"""The built site boots under a sub-path, with nothing from anywhere else."""


def test_python_answers_with_plain_data(lab):
    assert lab.run("import numpy as np\n{'sum': float(np.arange(5).sum()), 'list': [1, None, 'x']}") == {
        "sum": 10.0,
        "list": [1, None, "x"],
    }
