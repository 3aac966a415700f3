//! Where the shared libraries are that are loaded at run time.
//!
//! Never in the working folder, where a stranger could have put one.

use super::HostError;
use std::{
    env,
    path::{Path, PathBuf},
};

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Library {
    /// The file; a bare name when the system's loader is to find it.
    pub path: PathBuf,
    /// How it was found.
    pub via: Via,
}

/// How a library was found, in the order of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Via {
    /// The caller named it.
    Explicit,
    /// An environment variable named it.
    Environment(&'static str),
    /// Beside the executable.
    Executable,
    /// In `.sdk/lib` of a folder above the executable.
    Sdk,
    /// In the user's data folder, `~/.local/share/trtc/lib`.
    UserData,
    /// In the active Python environment.
    VirtualEnv,
    /// The system's loader.
    System,
}

/// Looks for a library whose file is called `stem` (`libname.so`), or `stem` with a version after it.
///
/// Order: `explicit`; `variables`; beside the executable; `.sdk/lib` among the executable's ancestors; the user's data
/// folder; `site_packages` (a folder within) of the active Python environment. The caller tries the system's loader last.
///
/// # Errors
/// [`HostError::Library`] when the caller or the environment names a file that is not there (it is never passed over in
/// silence); [`HostError::NotFound`] with every place looked at.
pub fn find_library(
    stem: &str,
    explicit: Option<&Path>,
    variables: &[&'static str],
    site_packages: Option<&str>,
) -> Result<Library, HostError> {
    let named = explicit.map(|path| (path.to_owned(), Via::Explicit));
    let variable = |&name: &&'static str| {
        let path = env::var_os(name).filter(|path| !path.is_empty())?;
        Some((PathBuf::from(path), Via::Environment(name)))
    };
    if let Some((path, via)) = named.or_else(|| variables.iter().find_map(variable)) {
        let file = if path.is_dir() { newest(&path, stem).unwrap_or_else(|| path.join(stem)) } else { path };
        if !file.is_file() {
            let why = match via {
                Via::Environment(name) => format!("there is no such library, but {name} names it"),
                _ => "there is no such library".into(),
            };
            return Err(HostError::Library { path: file, why });
        }
        return Ok(Library { path: file, via });
    }
    let mut searched = Vec::new();
    for (folder, via) in folders(site_packages) {
        if let Some(path) = newest(&folder, stem) {
            return Ok(Library { path, via });
        }
        searched.push(folder);
    }
    Err(HostError::NotFound { searched })
}

/// Looks for ONNX Runtime: [`find_library`] with `TRTC_ORT_LIB` and `ORT_DYLIB_PATH`.
///
/// # Errors
/// As [`find_library`].
pub fn find_onnxruntime(explicit: Option<&Path>) -> Result<Library, HostError> {
    let variables = ["TRTC_ORT_LIB", "ORT_DYLIB_PATH"];
    find_library("libonnxruntime.so", explicit, &variables, Some("onnxruntime/capi"))
}

fn folders(site_packages: Option<&str>) -> Vec<(PathBuf, Via)> {
    let mut folders = Vec::new();
    if let Some(folder) = env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned)) {
        folders.push((folder.clone(), Via::Executable));
        let sdk = folder.ancestors().map(|folder| folder.join(".sdk/lib")).filter(|folder| folder.is_dir());
        folders.extend(sdk.map(|folder| (folder, Via::Sdk)));
    }
    let data = env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let home = env::var_os("HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    if let Some(data) = data.or_else(|| home.map(|home| home.join(".local/share"))) {
        folders.push((data.join("trtc/lib"), Via::UserData));
    }
    let venv = env::var_os("VIRTUAL_ENV").map(PathBuf::from).filter(|folder| folder.is_absolute());
    if let (Some(inner), Some(venv)) = (site_packages, venv) {
        let mut pythons: Vec<PathBuf> = std::fs::read_dir(venv.join("lib"))
            .map(|entries| entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
            .unwrap_or_default();
        pythons.sort();
        pythons.retain(|path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"python3"))
        });
        let inside = |path: PathBuf| (path.join("site-packages").join(inner), Via::VirtualEnv);
        folders.extend(pythons.into_iter().map(inside));
    }
    folders
}

/// The file called `stem` in `folder`, else the one with the highest version after that name.
fn newest(folder: &Path, stem: &str) -> Option<PathBuf> {
    let plain = folder.join(stem);
    if plain.is_file() {
        return Some(plain);
    }
    let version = |name: &str| -> Option<Vec<u64>> {
        name.strip_prefix(stem)?.strip_prefix('.')?.split('.').map(|part| part.parse().ok()).collect()
    };
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let versions = entries.filter_map(|entry| Some((version(entry.file_name().to_str()?)?, entry.path())));
    versions.filter(|(_, path)| path.is_file()).max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::{Via, find_library, newest};
    use crate::host::HostError;

    #[test]
    fn the_plain_name_wins_then_the_highest_version() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            std::fs::write(folder.path().join(name), b"").unwrap();
            folder.path().join(name)
        };
        assert_eq!(newest(folder.path(), "libx.so"), None);
        file("libx.so.bak");
        file("libxy.so.3");
        file("libx.so.1.9.0");
        let newer = file("libx.so.1.32.0");
        assert_eq!(newest(folder.path(), "libx.so"), Some(newer.clone()));
        // A folder may be named too.
        let found = find_library("libx.so", Some(folder.path()), &[], None).unwrap();
        assert_eq!((found.path, found.via), (newer, Via::Explicit));
        let plain = file("libx.so");
        assert_eq!(newest(folder.path(), "libx.so"), Some(plain));
    }

    #[test]
    fn what_was_named_is_not_passed_over() {
        let absent = std::path::Path::new("/no/such/libx.so");
        let error = find_library("libx.so", Some(absent), &[], None).unwrap_err();
        assert!(matches!(error, HostError::Library { .. }), "{error}");
        let error = find_library("libno-such-library.so", None, &[], None).unwrap_err();
        assert!(matches!(error, HostError::NotFound { ref searched } if !searched.is_empty()), "{error}");
    }
}
