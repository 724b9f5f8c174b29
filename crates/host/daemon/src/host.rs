//! The host and the build, for support bundles.

use std::fs;

/// The commit that the program was built from, abbreviated; empty if that is not known.
pub const COMMIT: &str = env!("SNIC_COMMIT");

/// Where a distribution says what it is called: `os-release(5)`.
const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// The name of the operating system; empty if it has none.
pub fn operating_system() -> String {
    let text = OS_RELEASE.iter().find_map(|path| fs::read_to_string(path).ok());
    text.and_then(|text| pretty_name(&text)).unwrap_or_default()
}

/// The name for people in the text of an `os-release` file.
fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?;
    let quoted = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote).and_then(|inner| inner.strip_suffix(quote)));
    Some(quoted.unwrap_or(value).to_owned())
}

/// The kernel's name and release, and the processor's architecture.
pub fn kernel() -> String {
    let word = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    format!("{} {} {}", word("ostype"), word("osrelease"), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_and_without_quotes() {
        let text = "NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\n";
        assert_eq!(pretty_name(text).as_deref(), Some("Debian GNU/Linux 13 (trixie)"));
        assert_eq!(pretty_name("PRETTY_NAME=Void\n").as_deref(), Some("Void"));
        assert_eq!(pretty_name("PRETTY_NAME='Arch Linux'").as_deref(), Some("Arch Linux"));
        assert_eq!(pretty_name("NAME=x\n"), None);
    }

    #[test]
    fn the_kernel_is_the_one_that_uname_names() {
        let uname = std::process::Command::new("uname").arg("-srm").output().expect("uname runs");
        let uname = String::from_utf8(uname.stdout).expect("text");
        assert_eq!(kernel(), uname.trim());
    }
}
