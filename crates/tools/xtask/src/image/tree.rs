//! The files of an image, and the layer that they make: the same files make the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use tar::{EntryType, Header};

/// User and group of the image's program.
pub const USER: u32 = 65_532;

/// A file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    /// `None` for a folder.
    content: Option<Vec<u8>>,
    mode: u32,
    /// User and group.
    owner: u32,
}

/// Files by path, without the first slash.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    /// Adds a folder that belongs to root, with those above it, unless it is there.
    fn folders(&mut self, path: &str) {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends.filter(|end| *end > 0) {
            let folder = Node { content: None, mode: 0o755, owner: 0 };
            self.nodes.entry(path[..end].to_owned()).or_insert(folder);
        }
    }

    /// Adds a folder with a mode and an owner.
    pub fn folder(&mut self, path: &str, mode: u32, owner: u32) {
        self.folders(path);
        self.nodes.insert(path.to_owned(), Node { content: None, mode, owner });
    }

    /// Adds a file that belongs to root.
    pub fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folders(above);
        }
        self.nodes.insert(path.to_owned(), Node { content: Some(content.into()), mode, owner: 0 });
    }

    /// Adds a file of this machine.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn copy(&mut self, path: &str, mode: u32, from: &Path) -> anyhow::Result<()> {
        let content = fs::read(from).with_context(|| format!("read {}", from.display()))?;
        self.file(path, mode, content);
        Ok(())
    }

    /// Adds the files of a folder and of the folders in it; others may read them.
    ///
    /// # Errors
    /// A file cannot be read, or is neither file nor folder.
    pub fn copy_folder(&mut self, path: &str, from: &Path) -> anyhow::Result<()> {
        for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
            let entry = entry?;
            let name = entry.file_name().into_string().ok().context("a name that is text")?;
            let (below, kind) = (format!("{path}/{name}"), entry.file_type()?);
            if kind.is_dir() {
                self.copy_folder(&below, &entry.path())?;
            } else {
                ensure!(kind.is_file(), "{} is no file", entry.path().display());
                self.copy(&below, 0o644, &entry.path())?;
            }
        }
        Ok(())
    }

    /// The paths of all files and folders.
    #[cfg(test)]
    pub fn paths(&self) -> Vec<&str> {
        self.nodes.keys().map(String::as_str).collect()
    }

    /// The layer: a tar archive of the files by path, all changed at `time`, in seconds since 1970.
    ///
    /// # Errors
    /// A path is too long for the format.
    pub fn layer(&self, time: u64) -> anyhow::Result<Vec<u8>> {
        let mut layer = tar::Builder::new(Vec::new());
        for (path, node) in &self.nodes {
            let mut header = Header::new_ustar();
            header.set_mode(node.mode);
            header.set_uid(node.owner.into());
            header.set_gid(node.owner.into());
            header.set_mtime(time);
            match &node.content {
                Some(content) => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_size(content.len().try_into()?);
                    layer.append_data(&mut header, path, content.as_slice())?;
                }
                None => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_size(0);
                    layer.append_data(&mut header, format!("{path}/"), std::io::empty())?;
                }
            }
        }
        Ok(layer.into_inner()?)
    }
}
