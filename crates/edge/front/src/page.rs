//! Access to a server's page for browsers: all of it is for those who may read all of it.

use snic_domain::Caller;

use crate::access::{Methods, Row};
use crate::authorization::{Authorization, NamedResource, decide_all};
use crate::identity::{self, TrustDomain};

/// Admits browsers whose certificate (DER) is an operator's who may call all of these methods for everything. Gives the
/// identity, such as `operator/alice`, or what the browser shows.
pub fn operators_only(
    domain: TrustDomain,
    authorization: Authorization,
    methods: Methods,
    shown: &[&str],
) -> impl Fn(Option<&[u8]>) -> Result<String, String> + Send + Sync + 'static {
    let rows: Vec<Row> = shown.iter().filter_map(|method| methods.named(method)).collect();
    move |certificate| match certificate.map(|der| identity::of_certificate(der, &domain)) {
        Some(Ok(identity)) if matches!(identity.caller(), Some(Caller::Operator(_))) => {
            let authorizer = authorization.current();
            let all = [NamedResource::everything()];
            let may = |row| decide_all(&*authorizer, &identity, row, &all, false).allowed;
            if rows.iter().all(|row| may(*row)) {
                return Ok(identity.to_string());
            }
            Err("this page is for operators whom the authorization policies allow to read everything"
                .to_owned())
        }
        Some(Ok(_)) => Err("this page is for operators".to_owned()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(format!(
            "this page is for operators: import a client certificate for \
             spiffe://{domain}/operator/<name> into the browser"
        )),
    }
}
