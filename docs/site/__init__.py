"""What the documentation site has besides its pages: references made from the sources, and hooks of mkdocs."""
