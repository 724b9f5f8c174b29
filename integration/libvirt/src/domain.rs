//! What a domain's XML says of it: who it is, and in the metadata element of our own namespace what
//! it wants of the card.
//!
//! ```xml
//! <metadata>
//!   <snic:vm xmlns:snic="urn:snic:libvirt:vm:1" tenant="acme" functions="2" lease="60">
//!     <snic:dag name="web"/>
//!     <snic:dag name="mail"/>
//!   </snic:vm>
//! </metadata>
//! ```
//!
//! Instead of DAGs, `<snic:template dag="web"/>` asks for one of its own like `web`. `functions`
//! and `lease` (seconds) may be left out. What is not known is refused, so that a misspelt wish is
//! never half a wish; entities and DTDs are refused by the parser.

use roxmltree::{Document, Node};

/// The namespace, without its version.
const NAMESPACE: &str = "urn:snic:libvirt:vm:";
/// The version that this program reads.
const VERSION: &str = "1";

/// What a domain wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The tenant that it is of.
    pub tenant: String,
    /// Where its packets go.
    pub chains: Chains,
    /// How many functions; 0 stands for one for each DAG.
    pub functions: u32,
    /// How long the binding outlives its last heartbeat, in seconds.
    pub lease_seconds: Option<i64>,
}

/// Where a domain's packets go, by ids within its tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chains {
    /// To DAGs that exist.
    Dags(Vec<String>),
    /// To one of its own, like this one.
    Template(String),
}

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its UUID.
    pub uuid: String,
    /// What it wants; `None` where it wants nothing of us.
    pub wish: Option<Result<Wish, Unreadable>>,
}

/// Why a domain's XML is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is no XML, or has a DTD.
    #[error("the domain's XML cannot be read: {0}")]
    Xml(String),
    /// It is no domain.
    #[error("the XML has no domain with a uuid")]
    NoDomain,
    /// A later version, or none.
    #[error("the domain asks in version {0:?} of {NAMESPACE}; this hook reads {VERSION}")]
    Version(String),
    /// More than one element of ours.
    #[error("the domain has {0} snic elements in its metadata; one is needed")]
    Twice(usize),
    /// Something in the element is not as it should be.
    #[error("metadata element snic:vm: {0}")]
    Element(String),
}

fn wrong(text: impl Into<String>) -> Unreadable {
    Unreadable::Element(text.into())
}

/// Reads a domain's XML, or the status file in which libvirt keeps it.
///
/// # Errors
/// [`Unreadable`] where not even the UUID can be told; what is wrong with the wish is in the wish.
pub fn read(xml: &str) -> Result<Domain, Unreadable> {
    let document = Document::parse(xml).map_err(|error| Unreadable::Xml(error.to_string()))?;
    let is_domain = |node: &Node<'_, '_>| node.has_tag_name("domain");
    let root = document.root_element();
    let domain = Some(root).filter(is_domain).or_else(|| root.children().find(is_domain));
    let child = |name: &'static str| {
        move |node: Node<'_, '_>| {
            node.has_tag_name(name)
                .then_some(node.text())
                .flatten()
                .map(str::trim)
                .map(str::to_owned)
        }
    };
    let domain = domain.ok_or(Unreadable::NoDomain)?;
    let uuid = domain.children().find_map(child("uuid")).filter(|uuid| !uuid.is_empty());
    Ok(Domain { uuid: uuid.ok_or(Unreadable::NoDomain)?, wish: wish(domain) })
}

fn wish(domain: Node<'_, '_>) -> Option<Result<Wish, Unreadable>> {
    let metadata = domain.children().filter(|node| node.has_tag_name("metadata"));
    let ours: Vec<(Node<'_, '_>, &str)> = metadata
        .flat_map(|metadata| metadata.children())
        .filter_map(|node| Some((node, node.tag_name().namespace()?.strip_prefix(NAMESPACE)?)))
        .collect();
    match ours[..] {
        [] => None,
        [(_, version)] if version != VERSION => {
            Some(Err(Unreadable::Version(version.chars().take(40).collect())))
        }
        [(element, _)] => Some(element_wish(element)),
        _ => Some(Err(Unreadable::Twice(ours.len()))),
    }
}

fn element_wish(element: Node<'_, '_>) -> Result<Wish, Unreadable> {
    let name = element.tag_name().name();
    if name != "vm" {
        return Err(wrong(format!("{name:?} is not known; \"vm\" is")));
    }
    let known = ["tenant", "functions", "lease"];
    if let Some(other) = element.attributes().find(|a| !known.contains(&a.name())) {
        return Err(wrong(format!("attribute {:?} is not known", other.name())));
    }
    let tenant = element.attribute("tenant").ok_or_else(|| wrong("it has no tenant"))?;
    let functions = match element.attribute("functions") {
        None => 0,
        Some(text) => text
            .parse()
            .ok()
            .filter(|count| *count > 0)
            .ok_or_else(|| wrong(format!("functions={text:?} is no number of functions")))?,
    };
    let lease = |text: &str| {
        let invalid = || wrong(format!("lease={text:?} is no number of seconds"));
        text.parse::<u32>().map(i64::from).map_err(|_| invalid())
    };
    Ok(Wish {
        tenant: tenant.to_owned(),
        chains: chains(element)?,
        functions,
        lease_seconds: element.attribute("lease").map(lease).transpose()?,
    })
}

fn chains(element: Node<'_, '_>) -> Result<Chains, Unreadable> {
    let mut dags = Vec::new();
    let mut templates = Vec::new();
    for child in element.children().filter(Node::is_element) {
        let (name, key) = match child.tag_name().name() {
            "dag" => (&mut dags, "name"),
            "template" => (&mut templates, "dag"),
            other => return Err(wrong(format!("{other:?} is not known"))),
        };
        let value = child.attribute(key).filter(|value| !value.is_empty());
        let missing = || wrong(format!("{:?} has no {key}", child.tag_name().name()));
        name.push(value.ok_or_else(missing)?.to_owned());
    }
    match (&dags[..], &templates[..]) {
        ([_, ..], []) => Ok(Chains::Dags(dags)),
        ([], [template]) => Ok(Chains::Template(template.clone())),
        _ => Err(wrong("name at least one dag, or one template")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "123e4567-e89b-42d3-a456-426614174000";

    fn domain(metadata: &str) -> Domain {
        let xml = format!(
            "<domain type='qemu'><name>x</name><uuid>{UUID}</uuid>\
             <metadata>{metadata}</metadata></domain>"
        );
        read(&xml).expect("a domain")
    }

    fn vm(attributes: &str, children: &str) -> Domain {
        domain(&format!("<s:vm xmlns:s='urn:snic:libvirt:vm:1' {attributes}>{children}</s:vm>"))
    }

    fn problem(domain: Domain) -> String {
        domain.wish.expect("it wants something").expect_err("nonsense").to_string()
    }

    #[test]
    fn a_wish_is_read() {
        let found =
            vm("tenant='acme' functions='2' lease='60'", "<s:dag name='a'/><s:dag name='b'/>");
        let wish = Wish {
            tenant: "acme".into(),
            chains: Chains::Dags(vec!["a".into(), "b".into()]),
            functions: 2,
            lease_seconds: Some(60),
        };
        assert_eq!(found, Domain { uuid: UUID.into(), wish: Some(Ok(wish)) });
        let own =
            vm("tenant='acme'", "<s:template dag='a'/>").wish.expect("a wish").expect("valid");
        assert_eq!(own.chains, Chains::Template("a".into()));
    }

    #[test]
    fn others_metadata_is_not_ours() {
        let other = "<o:os xmlns:o='http://libosinfo.org/xmlns/libvirt/domain/1.0'/>";
        assert_eq!(domain(other).wish, None);
        assert_eq!(domain("").wish, None);
    }

    #[test]
    fn a_status_file_holds_a_domain() {
        let xml = format!("<domstatus><domain id='1'><uuid>{UUID}</uuid></domain></domstatus>");
        assert_eq!(read(&xml).expect("a domain").uuid, UUID);
    }

    #[test]
    fn what_is_not_known_is_named() {
        assert!(problem(domain("<s:vm xmlns:s='urn:snic:libvirt:vm:2'/>")).contains("\"2\""));
        assert!(problem(domain("<s:nic xmlns:s='urn:snic:libvirt:vm:1'/>")).contains("nic"));
        let dag = "<s:dag name='a'/>";
        assert!(problem(vm("", dag)).contains("tenant"));
        assert!(problem(vm("tenant='a' vlan='3'", dag)).contains("vlan"));
        assert!(problem(vm("tenant='a' functions='0'", dag)).contains("functions"));
        assert!(problem(vm("tenant='a' lease='-1'", dag)).contains("lease"));
        assert!(problem(vm("tenant='a'", "")).contains("at least one"));
        assert!(problem(vm("tenant='a'", "<s:dag/>")).contains("name"));
        assert!(problem(vm("tenant='a'", "<s:net/>")).contains("net"));
        let both = format!("{dag}<s:template dag='a'/>");
        assert!(problem(vm("tenant='a'", &both)).contains("at least one"));
        let twice = "<s:vm xmlns:s='urn:snic:libvirt:vm:1'/>".repeat(2);
        assert!(problem(domain(&twice)).contains("2 snic elements"));
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        let bomb = "<!DOCTYPE x [<!ENTITY a 'aa'>]><domain>&a;</domain>";
        for xml in ["", "hello", "<domain>", bomb] {
            assert!(matches!(read(xml), Err(Unreadable::Xml(_))), "{xml}");
        }
        for xml in ["<network/>", "<domain/>", "<domain><uuid> </uuid></domain>"] {
            assert_eq!(read(xml), Err(Unreadable::NoDomain), "{xml}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(text in ".{0,200}", cut in 0usize..400) {
            let _ = read(&text);
            let xml = format!(
                "<domain><uuid>{UUID}</uuid><metadata><s:vm xmlns:s='urn:snic:libvirt:vm:1' \
                 tenant='a'>{text}<s:dag name='a'/></s:vm></metadata></domain>"
            );
            let end = xml.char_indices().map(|(at, _)| at).take_while(|at| *at <= cut).last();
            let _ = read(&xml[..end.unwrap_or(0)]);
        }
    }
}
