"""Rows of the op table that point elsewhere: constants, variables, initializers, summaries."""

from tests.ops.rows import Elsewhere, Table

TABLE: Table = {
    "Const": Elsewhere("tests/ops/test_core.py", "it has no inputs"),
    "OrthogonalMatrix": Elsewhere("tests/test_initializers.py", "many matrices are right"),
    "RequireInitialized": Elsewhere("tests/test_variables.py", "it fails or says nothing"),
    "UninitializedNames": Elsewhere("tests/test_variables.py", "names depend on the session"),
    "ConditionalSummary": Elsewhere(
        "tests/ops/test_summary_ops.py", "the value is a serialised proto", "written_when"
    ),
    **{
        f"{name.title()}Summary": Elsewhere(
            "tests/test_summary.py", "the value is a serialised proto", f"summary.{name}("
        )
        for name in ("histogram", "image", "merge", "scalar", "text")
    },
}
