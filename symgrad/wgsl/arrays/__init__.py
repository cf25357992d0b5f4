"""Arrays that live on a GPU: views, arithmetic and reductions of them."""
