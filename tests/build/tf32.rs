//! Products of f32 are f32 unless TF32 is allowed: in engines that are built at once, later, or taken from the cache.

use crate::support::{Place, can_build, options, products};
use trtc::{Bundle, Quiet, build};

/// What the engine of a bundle says of TF32, for the GPU's compiler to read.
fn of_engine(place: &Place) -> &'static str {
    let bundle = Bundle::open(place.bundle()).unwrap();
    let engine = bundle.manifest().targets[0].segments[0].engine.unwrap();
    let engine = bundle.engine(engine).unwrap();
    let says = |text: &str| engine.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(says("nvidia_tf32_override=-1"), "the builder's environment is in the engine");
    match (says("\n  tf32=0\n"), says("\n  tf32=1\n")) {
        (true, false) => "off",
        (false, true) => "on",
        other => panic!("{other:?}"),
    }
}

#[test]
fn f32_is_f32_unless_tf32_is_allowed() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(2));
    let options = options().cache_dir(place.path("cache"));
    // Each a second time, out of the cache.
    for cached in [false, true] {
        for (allow, expected) in [(false, "off"), (true, "on")] {
            let report = place.compile(&options.clone().tf32(allow));
            assert_eq!(report.targets[0].segments[0].cached, cached);
            assert_eq!(report.targets[0].tf32, allow);
            assert_eq!(of_engine(&place), expected);
            assert_eq!(Bundle::open(place.bundle()).unwrap().manifest().targets[0].tf32, allow);
        }
    }
}

#[test]
fn deferred_engines_are_built_as_the_compile_said() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(2));
    for (allow, expected) in [(true, "on"), (false, "off")] {
        place.compile(&options().tf32(allow).build_engines(false));
        // What the one who builds says of it has no effect.
        build(&place.bundle(), &options().tf32(!allow), &Quiet).unwrap();
        assert_eq!(of_engine(&place), expected);
    }
}
