//! The subject of a request, read from its bytes, so that denied requests are covered too. The option `facts` of its
//! method says which fields name it.

use snic_api::methods::{AuditedRequest, audited};

/// Longest text of a request in the log, in characters: the longest valid name fits, and nobody can
/// fill the log with a name.
const TEXT_CHARS_MAX: usize = 200;
/// gRPC's frame header: compression flag and length.
const FRAME_HEADER_BYTES: usize = 5;

/// The subject of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestSubject {
    /// Name of the resource.
    pub resource: String,
    /// `tenants/{tenant}` that owns it, if the request tells.
    pub tenant: String,
    /// The request id, if there is one.
    pub request_id: String,
    /// Whether the request is only to be checked.
    pub validate_only: bool,
}

/// The subject of a request to `Service/Method`, from its first message as framed on the wire; empty where that
/// cannot be read.
pub fn subject(method: &str, framed: &[u8]) -> RequestSubject {
    let Some((header, message)) = framed.split_at_checked(FRAME_HEADER_BYTES) else {
        return RequestSubject::default();
    };
    let length = header[1..].iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
    let read = message.get(..length).filter(|_| header[0] == 0);
    read.and_then(|message| audited(method, message)).map(RequestSubject::from).unwrap_or_default()
}

/// `tenants/{tenant}` that owns a resource, from its name.
fn owner(resource: &str) -> Option<String> {
    let (collection, rest) = resource.split_once('/')?;
    let tenant = match collection {
        "tenants" => rest.split('/').next()?,
        "ntTypes" | "bitstreams" | "classificationRules" => rest.split_once('.')?.0,
        _ => return None,
    };
    Some(format!("tenants/{tenant}"))
}

impl From<AuditedRequest> for RequestSubject {
    fn from(of: AuditedRequest) -> Self {
        let tenant = owner(&of.owner).or_else(|| owner(&of.resource)).unwrap_or_default();
        let [resource, tenant, request_id] = [of.resource, tenant, of.request_id].map(shortened);
        Self { resource, tenant, request_id, validate_only: of.validate_only }
    }
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use rstest::rstest;
    use snic_api::v1;

    use super::*;

    fn framed(message: &impl Message) -> Vec<u8> {
        let bytes = message.encode_to_vec();
        let length = u32::try_from(bytes.len()).expect("short");
        [&[0][..], &length.to_be_bytes(), &bytes].concat()
    }

    #[test]
    fn a_create_is_about_what_it_would_make() {
        let request = v1::CreateDagRequest {
            parent: "tenants/acme".into(),
            dag_id: "web".into(),
            request_id: "id".into(),
            validate_only: true,
            ..Default::default()
        };
        let expected = RequestSubject {
            resource: "tenants/acme/dags/web".into(),
            tenant: "tenants/acme".into(),
            request_id: "id".into(),
            validate_only: true,
        };
        assert_eq!(subject("DagService/CreateDag", &framed(&request)), expected);
    }

    /// The request id is found in what clients send, by the published descriptors: no method is left out here when one is added.
    #[test]
    fn the_request_id_of_every_method_that_has_one_is_found() {
        use prost_types::FileDescriptorSet;

        let files = FileDescriptorSet::decode(snic_api::FILE_DESCRIPTOR_SET).expect("descriptors");
        let of_snic = || files.file.iter().filter(|file| file.package() == "snic.control.v1");
        let mut methods = 0;
        let of_service = of_snic()
            .flat_map(|file| &file.service)
            .flat_map(|service| service.method.iter().map(move |method| (service.name(), method)));
        for (service, method) in of_service {
            let request = method.input_type().rsplit('.').next().expect("a name");
            let message = of_snic().flat_map(|file| &file.message_type);
            let message = message.into_iter().find(|m| m.name() == request).expect("a request");
            let field = message.field.iter().find(|field| field.name() == "request_id");
            let Some(number) = field.map(|field| field.number()) else { continue };
            methods += 1;
            // Tag of a field with a length, the length, the text.
            let tag = u8::try_from(number << 3 | 2).expect("a small number");
            let body = [&[tag, 2][..], b"id"].concat();
            let length = u32::try_from(body.len()).expect("short").to_be_bytes();
            let path = format!("{service}/{}", method.name());
            let found = subject(&path, &[&[0][..], &length, &body].concat());
            assert_eq!(found.request_id, "id", "{}", method.name());
        }
        assert!(methods >= 25, "{methods} methods with a request id");
    }

    #[rstest]
    #[case("tenants/acme", "tenants/acme")]
    #[case("tenants/acme/dags/web", "tenants/acme")]
    #[case("ntTypes/acme.filter", "tenants/acme")]
    #[case("bitstreams/acme.filter", "tenants/acme")]
    #[case("ntTypes/nat", "")]
    #[case("cards/card0/regions/3", "")]
    #[case("operations/x", "")]
    fn a_name_says_whose_it_is(#[case] name: &str, #[case] tenant: &str) {
        let request = v1::DeleteTenantRequest { name: name.into(), ..Default::default() };
        let found = subject("TenantService/DeleteTenant", &framed(&request));
        assert_eq!((found.resource.as_str(), found.tenant.as_str()), (name, tenant));
    }

    #[test]
    fn a_machine_is_of_the_tenant_that_the_request_says() {
        let request = v1::BindVmRequest {
            vm: "u".into(),
            tenant: "tenants/acme".into(),
            ..Default::default()
        };
        let found = subject("OrchestrationService/BindVm", &framed(&request));
        assert_eq!(found.resource, "vmBindings/u");
        assert_eq!(found.tenant, "tenants/acme");
        let rule = v1::Rule { dag: "tenants/globex/dags/a".into(), ..Default::default() };
        let request = v1::CreateRuleRequest {
            rule_id: "r".into(),
            rule: Some(rule),
            request_id: String::new(),
            validate_only: false,
        };
        let found = subject("ClassificationService/CreateRule", &framed(&request));
        assert_eq!(found.tenant, "tenants/globex");
    }

    #[test]
    fn a_batch_names_its_dags() {
        let one = |id: &str| v1::CreateDagRequest { dag_id: id.into(), ..Default::default() };
        let request = v1::BatchCreateDagsRequest {
            parent: "tenants/acme".into(),
            requests: vec![one("web"), one("db")],
            validate_only: true,
            request_id: "r".into(),
            ..Default::default()
        };
        let found = subject("DagService/BatchCreateDags", &framed(&request));
        assert_eq!(found.resource, "tenants/acme/dags/web,db");
        assert_eq!((found.tenant.as_str(), found.request_id.as_str()), ("tenants/acme", "r"));
        assert!(found.validate_only);
    }

    #[test]
    fn an_unreadable_request_has_no_subject_and_long_texts_are_cut() {
        let named = |name: String| v1::DeleteTenantRequest { name, ..Default::default() };
        let (method, whole) = ("TenantService/DeleteTenant", framed(&named("é".repeat(5_000))));
        let cut = subject(method, &whole);
        assert_eq!(cut.resource.chars().count(), TEXT_CHARS_MAX);
        for end in 0..20 {
            assert_eq!(subject(method, &whole[..end]), RequestSubject::default(), "{end}");
        }
        let mut compressed = framed(&named("a".into()));
        compressed[0] = 1;
        assert_eq!(subject(method, &compressed), RequestSubject::default());
        let chunk = v1::UploadBitstreamRequest {
            part: Some(v1::upload_bitstream_request::Part::Chunk(vec![1].into())),
        };
        let found = subject("BitstreamService/UploadBitstream", &framed(&chunk));
        assert_eq!(found, RequestSubject::default());
    }
}
