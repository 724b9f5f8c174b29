use super::*;

/// Rules of hosts, and how many pages were asked for.
struct TestRules(BTreeMap<HostId, Vec<v1::Rule>>);

fn host(number: usize) -> HostId {
    HostId::new(&format!("h{number}")).expect("a name")
}

fn rule(name: &str, dag: &str) -> v1::Rule {
    v1::Rule { name: name.to_owned(), dag: dag.to_owned(), ..v1::Rule::default() }
}

impl TestRules {
    /// So many rules of each host, some of one name on all of them.
    fn new(counts: &[usize]) -> Self {
        let of = |(number, count): (usize, &usize)| {
            let mut rules: Vec<_> = (0..*count)
                .map(|at| rule(&format!("r{:03}", at * counts.len() + number), "d"))
                .chain([rule("r002", &format!("of-{number}"))])
                .collect();
            rules.sort_by(|one, other| (&one.name, &one.dag).cmp(&(&other.name, &other.dag)));
            (host(number), rules)
        };
        Self(counts.iter().enumerate().map(of).collect())
    }

    /// All keys in their order.
    fn keys(&self) -> Vec<String> {
        let rules =
            self.0.iter().flat_map(|(host, rules)| rules.iter().map(move |rule| (host, rule)));
        let mut keys: Vec<_> = rules.map(|(host, rule)| self.key(host, rule)).collect();
        keys.sort();
        keys
    }

    /// A page of a host, as it answers; its token is the number of the next entry.
    fn answer(&self, host: &HostId, page: &HostPage) -> (Vec<v1::Rule>, String) {
        let first = page.filter.strip_prefix("from ").unwrap_or_default();
        let rules = self.0[host].iter().filter(|rule| rule.name.as_str() >= first);
        let begin: usize = page.token.parse().unwrap_or_default();
        let rules: Vec<_> = rules.skip(begin).cloned().collect();
        let size = usize::try_from(page.size).expect("a size");
        let token = if rules.len() > size { (begin + size).to_string() } else { String::new() };
        (rules.into_iter().take(size).collect(), token)
    }
}

#[tonic::async_trait]
impl HostList for TestRules {
    type Item = v1::Rule;

    async fn page(&self, _: HostTransport, _: HostPage) -> Result<(Vec<v1::Rule>, String), Status> {
        Err(Status::internal("these tests answer themselves"))
    }

    fn named(&self, _: &HostId, item: v1::Rule) -> v1::Rule {
        item
    }

    fn key(&self, _: &HostId, item: &v1::Rule) -> String {
        format!("{} {}", item.name, item.dag)
    }

    fn not_before(&self, key: &str) -> Option<String> {
        key.split_once(' ').map(|(name, _)| format!("from {name}"))
    }
}

/// Keys of a page of so many entries behind a key, and how many pages hosts were asked for.
fn page(
    counts: &[usize],
    after: Option<&str>,
    most: usize,
    silent: &[HostId],
) -> (Vec<String>, usize) {
    let rules = TestRules::new(counts);
    let hosts: Vec<HostId> = rules.0.keys().cloned().collect();
    let mut parts = MergedParts::new(rules, hosts, after, most).expect("a key");
    let (mut keys, mut asked) = (Vec::new(), 0);
    while keys.len() < most {
        loop {
            let dry = parts.dry();
            if dry.is_empty() {
                break;
            }
            let (mut found, mut missing) = (Vec::new(), MissingHosts::default());
            for (host, token) in &dry {
                asked += 1;
                let size = i32::try_from(parts.size).expect("a size");
                let page = HostPage { size, token: token.clone(), filter: parts.filter.clone() };
                if silent.contains(host) {
                    missing.add(host.clone(), "silent".to_owned());
                } else {
                    found.push((host.clone(), parts.list.answer(host, &page)));
                }
            }
            let hosts: Vec<HostId> = dry.into_keys().collect();
            parts.add(&hosts, HostAnswers { found, missing });
        }
        let Some((key, _)) = parts.take() else { break };
        keys.push(key);
    }
    assert_eq!(parts.missing.0.len(), silent.len());
    (keys, asked)
}

/// Whatever the sizes of pages and of hosts' parts, each entry comes once, in its order.
#[test]
fn entries_of_hosts_are_merged_without_a_hole() {
    for counts in [&[0, 0][..], &[40, 0, 3], &[1, 1, 1, 1, 1], &[0, 90], &[17, 16, 15, 40]] {
        let wanted = TestRules::new(counts).keys();
        for most in [1, 2, 7, 1_000] {
            let (mut all, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
            loop {
                let (keys, _) = page(counts, after.as_deref(), most, &[]);
                assert!(keys.len() <= most);
                let Some(last) = keys.last() else { break };
                after = Some(last.clone());
                all.extend(keys);
                assert!(all.len() <= wanted.len(), "no end: {counts:?}, {most} a page");
            }
            assert_eq!(all, wanted, "{counts:?}, {most} a page");
        }
    }
}

/// A page of a thousand hosts asks each of them once, or nearly so, and for few entries.
#[test]
fn a_page_of_a_thousand_hosts_is_bounded() {
    let counts = [20; 1_000];
    let (keys, asked) = page(&counts, None, 51, &[]);
    assert_eq!(keys, TestRules::new(&counts).keys()[..51]);
    assert!((1_000..1_100).contains(&asked), "{asked} pages of hosts");
}

#[test]
fn a_silent_host_is_named_and_the_others_are_listed() {
    let (keys, _) = page(&[3, 3], None, 100, &[host(1)]);
    assert_eq!(keys.len(), 4, "those of the first host: {keys:?}");
    let mut missing = MissingHosts::default();
    missing.add(host(1), "not linked".to_owned());
    let (operator, tenant) = (
        Caller::Operator("root".into()),
        Caller::Tenant(TenantId::new("acme").expect("a test id")),
    );
    let shown = |reader| missing.to_wire(reader).remove(0);
    assert_eq!(
        (shown(&operator).host, shown(&operator).reason),
        ("hosts/h1".into(), "not linked".into())
    );
    assert_eq!(shown(&tenant), v1::UnreachableHost::default());
    let said = |reader| missing.may_have("rule r", reader).message().to_owned();
    assert!(said(&operator).contains("host h1 (not linked)"), "{}", said(&operator));
    assert!(!said(&tenant).contains("h1"), "{}", said(&tenant));
}
