//! A run with static dims allocates nothing of ours once it is warm.
#![allow(clippy::unwrap_used)] // A test ends there.
#![allow(unsafe_code)] // An allocator that counts is an unsafe trait.

mod common;

use common::*;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};
use trtc_bundle::Bundle;
use trtc_runtime::{Mode, Session, SessionOptions, Tensor, Value};

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: as promised to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as promised to us.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_run_allocates_nothing() {
    let (_folder, path) = chained(Some(4));
    let bundle = Bundle::open(path).unwrap();
    for mode in [Mode::WholeModel, Mode::Segments] {
        let session = Session::new(&bundle, &SessionOptions::default().mode(mode).timing(true)).unwrap();
        let x = numbers(4 * SIDE, 1);
        let input = Tensor::from_slice(&[4, SIDE], &x).unwrap();
        let mut outputs = vec![Value::Nothing];
        let mut run = || session.run_into(&[(&input).into()], &mut outputs).unwrap();
        run();
        let before = COUNT.with(Cell::get);
        for _ in 0..10 {
            run();
        }
        assert_eq!(COUNT.with(Cell::get) - before, 0, "{mode:?}");
        assert_eq!(outputs[0].as_tensor().unwrap().as_slice(), Some(&chain_by_hand(&x)[..]));
    }
}
