//! A look whether a program could write in a folder, before it has to.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

/// Bytes that a folder must take.
const PROBE_BYTES: usize = 64 << 10;

/// Writes and syncs a file in the folder, which is gone afterwards; where the folder is not there yet, in the one in which
/// it would be made. Gives whether it is there.
///
/// # Errors
/// It cannot be written, or not be made; the error names the folder that refuses.
pub fn try_folder(folder: &Path) -> io::Result<bool> {
    let absolute = std::path::absolute(folder)?;
    for there in absolute.ancestors() {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", there.display()))
        };
        match fs::metadata(there) {
            Ok(found) if found.is_dir() => {
                write_probe(there).map_err(named)?;
                return Ok(there == absolute);
            }
            Ok(_) => return Err(named(ErrorKind::NotADirectory.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(named(error)),
        }
    }
    Err(ErrorKind::NotFound.into())
}

fn write_probe(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".snic-probe-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    // Without a name it is gone however the program ends.
    fs::remove_file(&path)?;
    file.write_all(&[0x5A; PROBE_BYTES])?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_the_place_of_a_folder_is_named() {
        let file = std::env::current_exe().expect("it runs");
        for path in [file.clone(), file.join("below/it")] {
            let error = try_folder(&path).expect_err("it is a file");
            assert!(error.to_string().contains(&file.display().to_string()), "{error}");
        }
    }
}
