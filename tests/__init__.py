"""Everything that tests this project."""

import testkit  # noqa: F401  (it sets what the product finds in its environment)
