//! Where the libraries are.

use std::path::{Path, PathBuf};
use trtc_bundle::Product;

/// Environment variables that name a library file: TensorRT-RTX's, TensorRT's.
pub const LIBRARY_VARIABLES: [&str; 2] = ["TRTC_TENSORRT_RTX_LIB", "TRTC_TENSORRT_LIB"];

/// What a library is wanted for: TensorRT has smaller libraries that only run engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Building engines.
    Build,
    /// Running engines.
    Run,
}

/// No library was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {} library found: looked for {}", product_name(*.product), .tried.join(", "))]
pub struct NotFound {
    /// The product.
    pub product: Product,
    /// Files and folders that were looked at, in order.
    pub tried: Vec<String>,
}

pub(crate) fn product_name(product: Product) -> &'static str {
    match product {
        Product::Rtx => "TensorRT-RTX",
        Product::TensorRt => "TensorRT",
        _ => "host",
    }
}

fn file_names(product: Product, wanted: Use) -> &'static [&'static str] {
    match (product, wanted) {
        (Product::Rtx, _) => &["libtensorrt_rtx.so.1"],
        (Product::TensorRt, Use::Build) => &["libnvinfer.so.11"],
        (Product::TensorRt, Use::Run) => &["libnvinfer.so.11", "libnvinfer_lean.so.11"],
        _ => &[],
    }
}

/// Finds a product's library without loading it.
///
/// The first of: `explicit`; the product's environment variable ([`LIBRARY_VARIABLES`]); `.sdk/lib` in a folder above
/// the running executable; the dynamic loader's folders. The working folder is never searched, where a stranger could
/// plant one.
///
/// # Errors
/// [`NotFound`]. A named file that is not there is an error at once: another library than the one asked for would
/// surprise.
pub fn locate(product: Product, wanted: Use, explicit: Option<&Path>) -> Result<PathBuf, NotFound> {
    let variable = match product {
        Product::Rtx => std::env::var_os(LIBRARY_VARIABLES[0]),
        Product::TensorRt => std::env::var_os(LIBRARY_VARIABLES[1]),
        _ => None,
    };
    let named =
        explicit.map(Path::to_owned).or_else(|| variable.filter(|v| !v.is_empty()).map(PathBuf::from));
    if let Some(path) = named {
        // A bare name would be searched by the loader; made absolute, it is this file or none.
        return match std::path::absolute(&path) {
            Ok(full) if full.is_file() => Ok(full),
            _ => Err(NotFound { product, tried: vec![path.display().to_string()] }),
        };
    }

    let mut folders = Vec::new();
    if let Ok(executable) = std::env::current_exe().and_then(|path| path.canonicalize()) {
        folders.extend(executable.ancestors().skip(1).map(|folder| folder.join(".sdk/lib")));
    }
    folders.retain(|folder| folder.is_dir());
    if let Some(list) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.extend(std::env::split_paths(&list).filter(|folder| folder.is_absolute()));
    }

    let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    for name in file_names(product, wanted) {
        let here = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        if let Some(path) = here.or_else(|| in_loader_cache(&cache, name)) {
            return Ok(path);
        }
    }
    let mut tried: Vec<String> = file_names(product, wanted).iter().map(|name| (*name).to_owned()).collect();
    tried.extend(folders.iter().map(|folder| format!("in {}", folder.display())));
    tried.push("in the dynamic loader's folders".to_owned());
    Err(NotFound { product, tried })
}

/// The path of `name` in the loader's cache, where all strings stand as NUL-terminated text.
fn in_loader_cache(cache: &[u8], name: &str) -> Option<PathBuf> {
    let suffix = format!("/{name}");
    cache
        .split(|&byte| byte == 0)
        .filter_map(|text| std::str::from_utf8(text).ok())
        .filter(|text| text.starts_with('/') && text.ends_with(&suffix))
        .map(PathBuf::from)
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_that_is_missing_is_an_error_at_once() {
        let error = locate(Product::Rtx, Use::Build, Some(Path::new("/nowhere/lib.so"))).unwrap_err();
        assert_eq!(error.to_string(), "no TensorRT-RTX library found: looked for /nowhere/lib.so");
    }

    #[test]
    fn the_loader_cache_is_read_as_strings() {
        let cache = b"head\0libm.so.6\0/nowhere/libm.so.6\0/proc/self/exe\0";
        assert_eq!(in_loader_cache(cache, "libm.so.6"), None);
        assert_eq!(in_loader_cache(cache, "exe"), Some("/proc/self/exe".into()));
    }

    #[test]
    fn the_host_has_no_library() {
        assert!(locate(Product::Host, Use::Build, None).is_err());
    }
}
