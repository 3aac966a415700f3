//! Generates enums and constants from both products' headers and compiles the shim once for each.
#![allow(clippy::print_stdout, reason = "cargo reads a build script's stdout")]

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::Command,
};

/// One product: the shim's object, the namespace its headers are compiled in, and a macro that only its headers define.
struct Product {
    title: &'static str,
    module: &'static str,
    namespace: &'static str,
    open: &'static str,
    define: &'static str,
    /// Found in the product's `NvInferVersion.h` and not in the other one's.
    marker: &'static str,
}

const PRODUCTS: [Product; 2] = [
    Product {
        title: "TensorRT-RTX 1.7",
        module: "rtx",
        namespace: "nvinfer1_rtx",
        open: "open_rtx",
        define: "TRTC_RTX",
        marker: "TRT_MAJOR_RTX",
    },
    Product {
        title: "TensorRT 11",
        module: "enterprise",
        namespace: "nvinfer1_ent",
        open: "open_enterprise",
        define: "TRTC_ENTERPRISE",
        marker: "TRT_MAJOR_ENTERPRISE",
    },
];

/// Types whose numbers the safe crate maps ours to.
const ENUMS: &str = "nvinfer1::(DataType|ActivationType|ElementWiseOperation|UnaryOperation|ReduceOperation\
|PoolingType|MatrixOperation|TopKOperation|GatherMode|SampleMode|ResizeCoordinateTransformation|ResizeSelector\
|ResizeRoundMode|InterpolationMode|ScatterMode|CumulativeOperation|FillOperation|TripLimit|LoopOutput\
|BoundingBoxFormat|TensorIOMode|TensorLocation|ComputeCapability)";

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let sdk = manifest.join("../../.sdk");
    println!("cargo::rerun-if-changed=cpp");
    println!("cargo::rerun-if-changed=src/bridge.rs");
    println!("cargo::rerun-if-env-changed=TENSORRT_INCLUDE_DIR");
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");

    let bases = include_dirs(&sdk);
    let mut headers = Vec::new();
    for product in &PRODUCTS {
        match bases.iter().find_map(|base| find_headers(base, product.marker)) {
            Some(dir) => headers.push(dir),
            None => {
                // The folder that `make sdk` makes: its appearance runs this script again.
                println!("cargo::rerun-if-changed={}", sdk.join("include").display());
                println!(
                    "cargo::error=the headers of {} were not found: run `make sdk`, or set TENSORRT_INCLUDE_DIR to a \
                     folder that holds its NvInfer.h",
                    product.title
                );
                return Ok(());
            }
        }
    }
    let Some(cuda) = cuda_headers(&bases) else {
        println!(
            "cargo::error=cuda_runtime_api.h was not found: run `make sdk`, or install the CUDA headers"
        );
        return Ok(());
    };

    for (product, dir) in PRODUCTS.iter().zip(&headers) {
        println!("cargo::rerun-if-changed={}", dir.join("NvInfer.h").display());
        if let Err(why) = bindings(dir, &cuda, &out.join(format!("{}.rs", product.module))) {
            println!(
                "cargo::error=bindgen failed on {}: {why} (libclang comes with `make sdk`; LIBCLANG_PATH names another)",
                dir.display()
            );
            return Ok(());
        }
    }

    cxx_build::bridge("src/bridge.rs")
        .file("cpp/open.cpp")
        .include("cpp")
        .std("c++17")
        .compile("trtc_bridge");
    for (product, dir) in PRODUCTS.iter().zip(&headers) {
        // Both headers are `namespace nvinfer1` full of inline functions with different layouts behind them; under one
        // name the linker would merge them.
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .file("cpp/shim.cpp")
            .include("cpp")
            .include(out.join("cxxbridge/include"))
            .include(out.join("cxxbridge/crate"))
            .flag("-isystem")
            .flag(dir)
            .flag("-isystem")
            .flag(&cuda)
            .flag_if_supported("-Wno-deprecated-declarations")
            .define("nvinfer1", product.namespace)
            .define("TRTC_OPEN", product.open)
            .define(product.define, None)
            .try_compile(&format!("trtc_shim_{}", product.module))?;
    }
    println!("cargo::rustc-link-lib=dl");
    Ok(())
}

/// Where headers are looked for, the user's own first.
fn include_dirs(sdk: &Path) -> Vec<PathBuf> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = env::var_os("TENSORRT_INCLUDE_DIR").map(PathBuf::from).into_iter().collect();
    dirs.push(sdk.join("include"));
    dirs.push(format!("/usr/include/{arch}-linux-gnu").into());
    dirs.extend(["/usr/include", "/usr/local/include", "/usr/local/cuda/include"].map(PathBuf::from));
    dirs
}

/// The folder with the product's `NvInfer.h`: `base` itself or a `TRT-*` folder in it.
fn find_headers(base: &Path, marker: &str) -> Option<PathBuf> {
    let mut dirs = vec![base.to_owned()];
    if let Ok(entries) = base.read_dir() {
        let named = entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("TRT-"));
        dirs.extend(named.map(|e| e.path()));
    }
    dirs.sort();
    dirs.into_iter().find(|dir| {
        let version = std::fs::read_to_string(dir.join("NvInferVersion.h")).unwrap_or_default();
        version.contains(marker) && dir.join("NvInfer.h").is_file()
    })
}

fn cuda_headers(bases: &[PathBuf]) -> Option<PathBuf> {
    let found = |dir: &&PathBuf| dir.join("cuda_runtime_api.h").is_file();
    bases.iter().find(found).cloned()
}

fn bindings(dir: &Path, cuda: &Path, to: &Path) -> Result<(), String> {
    let path =
        |p: &Path| p.to_str().map(str::to_owned).ok_or_else(|| format!("{} is not UTF-8", p.display()));
    let mut args = vec!["-x".to_owned(), "c++".to_owned(), "-std=c++17".to_owned()];
    for include in [dir, cuda] {
        args.extend(["-isystem".to_owned(), path(include)?]);
    }
    // A libclang without its builtin headers (pip's) borrows those of the C++ compiler.
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if let Ok(output) = Command::new(compiler).arg("-print-file-name=include").output() {
        args.extend(["-isystem".to_owned(), String::from_utf8_lossy(&output.stdout).trim().to_owned()]);
    }
    let header = path(&dir.join("NvInfer.h"))?;
    // bindgen panics when it finds no libclang.
    let generated = std::panic::catch_unwind(move || {
        bindgen::Builder::default()
            .header(header)
            .clang_args(args)
            .allowlist_type(ENUMS)
            .allowlist_var("NV_TENSORRT_(MAJOR|MINOR|PATCH)")
            .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: false })
            .enable_cxx_namespaces()
            .layout_tests(false)
            .generate_comments(false)
            .generate()
            .map_err(|e| e.to_string())
    });
    let generated = generated.map_err(|_| "no usable libclang".to_owned())??;
    generated.write_to_file(to).map_err(|e| format!("{}: {e}", to.display()))
}
