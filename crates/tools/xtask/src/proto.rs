//! The proto files as `buf` judges them: its standard lints, and whether a client of the last release
//! would still understand the server.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::packages::search_path;
use crate::report::Tally;
use crate::workspace::Workspace;

/// The npm package that ships the program.
const PACKAGE: &str = "@bufbuild/buf@1.75.0";
/// Descriptors of the released API.
const RELEASED: &str = "proto/released.binpb";

/// Checks the proto files.
///
/// Without `buf` and without `npm` to get it, nothing is checked: in CI that is a failure.
///
/// # Errors
/// A program cannot be started.
pub fn check(workspace: &Workspace) -> anyhow::Result<Tally> {
    let Some(buf) = buf(&workspace.target)? else {
        println!("buf is missing, needed to check the proto files: https://buf.build/docs/cli");
        return Ok(if command::is_ci() { Tally::one(false) } else { Tally::default() });
    };
    let run = |arguments: &[&str]| {
        command::succeeds(Command::new(&buf).current_dir(&workspace.root).args(arguments))
    };
    let lints = run(&["lint", "proto"])?;
    let compatible = run(&["breaking", "proto", "--against", RELEASED])?;
    if !compatible {
        println!("clients of the released API would break: add fields, methods and values instead");
    }
    let mut tally = Tally::one(lints);
    tally += Tally::one(compatible);
    Ok(tally)
}

/// The program: an installed one, or the npm package's in the target folder.
fn buf(target: &Path) -> anyhow::Result<Option<PathBuf>> {
    let found = |name: &str| {
        let mut folders = search_path().into_iter();
        folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()))
    };
    if let Some(installed) = found("buf") {
        return Ok(Some(installed));
    }
    let folder = target.join("tools/buf");
    let program = folder.join("node_modules/@bufbuild/buf-linux-x64/bin/buf");
    if !program.is_file()
        && let Some(npm) = found("npm")
    {
        let mut install = Command::new(npm);
        // The program is a file of the package: no script of it has to run.
        install.args(["install", "--no-save", "--ignore-scripts", "--prefix"]);
        command::succeeds(install.arg(&folder).arg(PACKAGE))?;
    }
    Ok(Some(program).filter(|program| program.is_file()))
}
