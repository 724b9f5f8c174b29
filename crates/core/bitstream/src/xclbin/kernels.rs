//! The kernels of a role, out of its XML. XRT reads them from there, names and addresses included,
//! and does not hold them against the layout.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::{InvalidXclbin, Ip};

/// Elements within each other at most; the metadata of XRT's tools has 7. Without a bound, a file
/// of nothing but opening tags would take several times its size.
const DEPTH_MAX: usize = 16;
/// Kernel instances at most; XRT's driver has room for 128.
const KERNELS_MAX: usize = 128;

/// An instance of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The kernel's name.
    pub kernel: String,
    pub instance: String,
    /// Byte address of its first register.
    pub base: u64,
    /// Bytes of its registers.
    pub range: u64,
    /// Where its arguments end in them, in bytes from the first; zero where it has none.
    pub arguments_end: u64,
}

impl Kernel {
    /// Whether it is `kernel:instance`.
    pub fn is(&self, name: &str) -> bool {
        name.split_once(':') == Some((&self.kernel, &self.instance))
    }

    fn name(&self) -> String {
        format!("{}:{}", self.kernel, self.instance)
    }
}

/// Where in the document the reader is.
#[derive(Default)]
struct DocumentPosition {
    depth: usize,
    core: bool,
    kernel: Option<String>,
    instance: Option<String>,
    arguments_end: u64,
}

/// Every kernel instance that the metadata describes; at least one.
pub(super) fn parse(xml: &[u8]) -> Result<Vec<Kernel>, InvalidXclbin> {
    let text =
        str::from_utf8(xml).map_err(|error| bad(error.valid_up_to() as u64, "it is not UTF-8"))?;
    // XRT's tools close the section with a NUL.
    let mut reader = Reader::from_str(text.trim_end_matches('\0'));
    let (mut place, mut kernels, mut ended) = (DocumentPosition::default(), Vec::new(), false);
    loop {
        let at = reader.buffer_position();
        match reader.read_event() {
            Ok(Event::Start(element)) => {
                open(&element, &mut place, &mut kernels).map_err(|what| bad(at, what))?;
                place.depth += 1;
                if place.depth > DEPTH_MAX {
                    return Err(bad(at, "its elements are too deep within each other"));
                }
            }
            Ok(Event::Empty(element)) => {
                open(&element, &mut place, &mut kernels).map_err(|what| bad(at, what))?;
                close(element.name().as_ref(), &mut place);
            }
            Ok(Event::End(element)) => {
                close(element.name().as_ref(), &mut place);
                place.depth = place.depth.saturating_sub(1);
                ended |= place.depth == 0;
            }
            Ok(Event::Eof) if place.depth == 0 && ended => break,
            Ok(Event::Eof) => return Err(bad(at, "it ends within an element")),
            // Entities defined by a document type are how a small document grows large.
            Ok(Event::DocType(_)) => return Err(bad(at, "it has a document type")),
            Ok(_) => {}
            Err(_) => return Err(bad(at, "it is not well formed")),
        }
    }
    if kernels.is_empty() { Err(InvalidXclbin::NoKernels) } else { Ok(kernels) }
}

fn bad(at: u64, problem: &str) -> InvalidXclbin {
    InvalidXclbin::Xml { at, problem: problem.to_owned() }
}

fn open(
    element: &BytesStart<'_>,
    place: &mut DocumentPosition,
    kernels: &mut Vec<Kernel>,
) -> Result<(), &'static str> {
    match element.name().as_ref() {
        b"core" => place.core = true,
        b"kernel" if place.core => {
            place.kernel = Some(attribute(element, "name")?);
            place.arguments_end = 0;
        }
        // They stand before the kernel's instances.
        b"arg" if place.kernel.is_some() => {
            let (offset, size) =
                (number_or_zero(element, "offset")?, number_or_zero(element, "size")?);
            let end = offset.checked_add(size).ok_or("an argument is too large")?;
            place.arguments_end = place.arguments_end.max(end);
        }
        b"instance" if place.kernel.is_some() => {
            place.instance = Some(attribute(element, "name")?);
        }
        b"addrRemap" => {
            if let (Some(kernel), Some(instance)) = (&place.kernel, &place.instance) {
                if kernels.len() == KERNELS_MAX {
                    return Err("it has too many kernels");
                }
                let (kernel, instance) = (kernel.clone(), instance.clone());
                let (base, range) = (number(element, "base")?, number(element, "range")?);
                let arguments_end = place.arguments_end;
                kernels.push(Kernel { kernel, instance, base, range, arguments_end });
            }
        }
        _ => {}
    }
    Ok(())
}

fn close(name: &[u8], place: &mut DocumentPosition) {
    match name {
        b"core" => place.core = false,
        b"kernel" => place.kernel = None,
        b"instance" => place.instance = None,
        _ => {}
    }
}

/// Names are short: they have to fit the 64 bytes of the layout.
fn attribute(element: &BytesStart<'_>, name: &str) -> Result<String, &'static str> {
    let found = element.try_get_attribute(name).map_err(|_| "an attribute is not well formed")?;
    let value = found.ok_or("an element lacks its name, base, range, offset or size")?.value;
    let is_name = (1..64).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    match str::from_utf8(&value) {
        Ok(text) if is_name => Ok(text.to_owned()),
        _ => Err("a name, base, range, offset or size is not a short text"),
    }
}

fn number(element: &BytesStart<'_>, name: &str) -> Result<u64, &'static str> {
    let text = attribute(element, name)?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a base, range, offset or size is not a number")
}

/// A stream has no place among the registers: tools write zero for it, or nothing, and XRT reads both as zero.
fn number_or_zero(element: &BytesStart<'_>, name: &str) -> Result<u64, &'static str> {
    match element.try_get_attribute(name) {
        Ok(Some(found)) if found.value.is_empty() => Ok(0),
        _ => number(element, name),
    }
}

/// Every kernel has its IP, at the same address.
pub(super) fn check(kernels: &[Kernel], ips: &[Ip<'_>]) -> Result<(), InvalidXclbin> {
    let has_ip = |kernel: &&Kernel| {
        ips.iter().any(|ip| ip.is_kernel && kernel.is(ip.name) && ip.base == kernel.base)
    };
    match kernels.iter().find(|kernel| !has_ip(kernel)) {
        Some(lost) => Err(InvalidXclbin::Kernel { kernel: lost.name(), base: lost.base }),
        None => Ok(()),
    }
}
