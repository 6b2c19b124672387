"""What each panel of the page asks for: a module for a panel."""
