"""From finished runs to a page people look at: reading, arithmetic, tables, figures. No torch."""
