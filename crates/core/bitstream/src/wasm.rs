//! The form of a WebAssembly module: what can be told from its sections without a compiler. A card that runs
//! modules checks all of a module when it loads it; this is what an upload is refused for, so that its author
//! hears at once of what goes wrong most often.

use snic_domain::limits::{MODULE_BYTES_MAX, MODULE_MEMORY_BYTES_MAX};

/// First bytes of a module: the magic number, and version 1.
const PREAMBLE: [u8; 8] = *b"\0asm\x01\0\0\0";
/// Bytes of a page of a module's memory.
const PAGE_BYTES: u64 = 65_536;
/// Imports that a module may have.
const IMPORTS: [(&str, &str); 1] = [("snic", "emit")];
/// Exports that a module must have, with the kind: 0 is a function, 2 a memory.
const EXPORTS: [(&str, u8); 4] =
    [("memory", 2), ("snic_abi_version", 0), ("snic_buffer", 0), ("snic_process", 0)];

/// Fault of a module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidModuleForm {
    #[error("it has {0} bytes; at most {MODULE_BYTES_MAX} are allowed")]
    TooLarge(usize),
    /// It does not begin like one.
    #[error(
        "it is no WebAssembly module of version 1: give a .wasm file, not a .wat or a component"
    )]
    Preamble,
    /// Lengths that do not fit.
    #[error("it is damaged at byte {0}")]
    Damaged(usize),
    /// An import that no card gives.
    #[error("it imports {module}.{name}; the only import is snic.emit")]
    Import {
        /// From which module.
        module: String,
        name: String,
    },
    /// An export is missing.
    #[error(
        "it does not export {0}; memory, snic_abi_version, snic_buffer and snic_process are needed"
    )]
    Export(&'static str),
    /// More memory than a card gives.
    #[error(
        "its memory begins with {0} bytes; at most {MODULE_MEMORY_BYTES_MAX} are allowed: link it with a smaller stack"
    )]
    Memory(u64),
}

/// Reads from the front.
struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn is_empty(&self) -> bool {
        self.at >= self.all.len()
    }

    fn damaged<T>(&self) -> Result<T, InvalidModuleForm> {
        Err(InvalidModuleForm::Damaged(self.at))
    }

    fn byte(&mut self) -> Result<u8, InvalidModuleForm> {
        let Some(byte) = self.all.get(self.at) else { return self.damaged() };
        self.at += 1;
        Ok(*byte)
    }

    /// An unsigned number in LEB128, of 64 bits at most.
    fn number(&mut self) -> Result<u64, InvalidModuleForm> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        self.damaged()
    }

    /// Part behind a length.
    fn part(&mut self) -> Result<Self, InvalidModuleForm> {
        let length = self.number()?;
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let Some(end) = end.filter(|end| *end <= self.all.len()) else { return self.damaged() };
        let part = Self { all: &self.all[..end], at: self.at };
        self.at = end;
        Ok(part)
    }

    fn name(&mut self) -> Result<&'a str, InvalidModuleForm> {
        let part = self.part()?;
        std::str::from_utf8(&part.all[part.at..]).or_else(|_| self.damaged())
    }

    /// The limits of a memory or a table: the least.
    fn limits(&mut self) -> Result<u64, InvalidModuleForm> {
        let flags = self.byte()?;
        let least = self.number()?;
        if flags & 1 == 1 {
            self.number()?;
        }
        Ok(least)
    }
}

/// Checks the size of a module, its sections, its imports, the names of its exports and its memory.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_module(bytes: &[u8]) -> Result<(), InvalidModuleForm> {
    if bytes.len() > MODULE_BYTES_MAX {
        return Err(InvalidModuleForm::TooLarge(bytes.len()));
    }
    if !bytes.starts_with(&PREAMBLE) {
        return Err(InvalidModuleForm::Preamble);
    }
    let mut reader = Reader { all: bytes, at: PREAMBLE.len() };
    let mut missing = EXPORTS.to_vec();
    while !reader.is_empty() {
        let section = reader.byte()?;
        let content = reader.part()?;
        match section {
            2 => check_imports(content)?,
            5 => check_memories(content)?,
            7 => check_exports(content, &mut missing)?,
            0..=13 => {}
            _ => return reader.damaged(),
        }
    }
    missing.first().map_or(Ok(()), |(name, _)| Err(InvalidModuleForm::Export(name)))
}

fn check_imports(mut content: Reader<'_>) -> Result<(), InvalidModuleForm> {
    for _ in 0..content.number()? {
        let (module, name, kind) = (content.name()?, content.name()?, content.byte()?);
        if !IMPORTS.contains(&(module, name)) || kind != 0 {
            let shown = |text: &str| text.chars().take(80).collect();
            return Err(InvalidModuleForm::Import { module: shown(module), name: shown(name) });
        }
        content.number()?;
    }
    Ok(())
}

fn check_memories(mut content: Reader<'_>) -> Result<(), InvalidModuleForm> {
    for _ in 0..content.number()? {
        let bytes = content.limits()?.saturating_mul(PAGE_BYTES);
        if bytes > MODULE_MEMORY_BYTES_MAX as u64 {
            return Err(InvalidModuleForm::Memory(bytes));
        }
    }
    Ok(())
}

fn check_exports(
    mut content: Reader<'_>,
    missing: &mut Vec<(&'static str, u8)>,
) -> Result<(), InvalidModuleForm> {
    for _ in 0..content.number()? {
        let export = (content.name()?, content.byte()?);
        content.number()?;
        missing.retain(|wanted| *wanted != export);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn section(id: u8, entries: &[&[u8]]) -> Vec<u8> {
        let content: Vec<u8> = entries.concat();
        let mut out = vec![id, content.len() as u8 + 1, entries.len() as u8];
        out.extend(content);
        out
    }

    fn named(name: &str, rest: &[u8]) -> Vec<u8> {
        [&[name.len() as u8], name.as_bytes(), rest].concat()
    }

    fn module(sections: &[Vec<u8>]) -> Vec<u8> {
        [&PREAMBLE[..], &sections.concat()].concat()
    }

    fn exports(names: &[(&str, u8)]) -> Vec<u8> {
        let entries: Vec<_> = names.iter().map(|(name, kind)| named(name, &[*kind, 0])).collect();
        section(7, &entries.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let good = exports(&EXPORTS);
        let emit = named("snic", &named("emit", &[0, 0]));
        let whole = module(&[section(2, &[&emit]), section(5, &[&[0, 2]]), good.clone()]);
        assert_eq!(check_module(&whole), Ok(()));
        for missing in 0..EXPORTS.len() {
            let mut names = EXPORTS.to_vec();
            let (name, kind) = names.remove(missing);
            assert_eq!(
                check_module(&module(&[exports(&names)])),
                Err(InvalidModuleForm::Export(name))
            );
            // One of another kind is none.
            names.push((name, kind ^ 2));
            assert_eq!(
                check_module(&module(&[exports(&names)])),
                Err(InvalidModuleForm::Export(name))
            );
        }
        let open = named("wasi_snapshot_preview1", &named("path_open", &[0, 0]));
        let error = check_module(&module(&[section(2, &[&emit, &open]), good.clone()]));
        assert!(
            matches!(error, Err(InvalidModuleForm::Import { name, .. }) if name == "path_open")
        );
        // A memory that is called like the function.
        let memory = named("snic", &named("emit", &[2, 0, 1]));
        let error = check_module(&module(&[section(2, &[&memory]), good.clone()]));
        assert!(matches!(error, Err(InvalidModuleForm::Import { .. })));
        let large = module(&[section(5, &[&[0, 33]]), good.clone()]);
        assert_eq!(check_module(&large), Err(InvalidModuleForm::Memory(33 * PAGE_BYTES)));
        assert_eq!(check_module(b"(module)"), Err(InvalidModuleForm::Preamble));
        let padded = [whole.clone(), vec![0; MODULE_BYTES_MAX]].concat();
        assert_eq!(check_module(&padded), Err(InvalidModuleForm::TooLarge(padded.len())));
        for cut in 0..whole.len() {
            assert!(check_module(&whole[..cut]).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_module_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = check_module(&bytes);
            let _ = check_module(&module(&[bytes]));
        }
    }
}
