"""Rows of the op table: ops on variables and of initializers."""

from tests.ops.rows import Elsewhere, Table

TABLE: Table = {
    "OrthogonalMatrix": Elsewhere("tests/test_initializers.py", "many matrices are right"),
    "RequireInitialized": Elsewhere("tests/test_variables.py", "it fails or says nothing"),
    "UninitializedNames": Elsewhere("tests/test_variables.py", "names depend on the session"),
}
