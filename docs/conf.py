"""Settings of Sphinx, which makes the site of the docs.

`make docs` builds it, and fails where a link leads nowhere, or a page has no place in index.rst.
"""

project = "Kafka-S3 platform"
copyright = "2026, the Kafka-S3 platform's authors. Apache License 2.0"
extensions = ["myst_parser", "sphinx_copybutton", "sphinxcontrib.mermaid"]

# Sphinx starts at the folder of the repository: so a link is the same on the site and where the code is hosted.
include_patterns = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("bench/results/**", "deploy/**", "docs/**"),
]
root_doc = "docs/index"

# Headings have the anchors that GitHub gives them, and its fences of drawings are drawn.
myst_heading_anchors = 6
myst_fence_as_directive = ["mermaid"]

html_theme = "furo"
html_title = project
copybutton_prompt_text = "$ "
