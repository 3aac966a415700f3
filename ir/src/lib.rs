//! The intermediate representation: graph, types, symbolic dims, inference, text form, passes.
