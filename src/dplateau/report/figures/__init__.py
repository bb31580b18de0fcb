"""The figures that the report and the explorer share: one description, drawn still or alive.

A figure is described by plain JSON (see the top of ``figure.js``). `still` draws it as SVG that
needs no script; ``figure.js`` draws the same description as an interactive figure.
"""
