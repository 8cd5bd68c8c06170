"""What HTML is made of, for pages and for notebooks: colours, elements, numbers as text, and the frame of a page.

All of it is Python's own library: whatever prints something can show it in a notebook.
"""
