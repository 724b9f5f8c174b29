//! In which order mutants are tried, and by which runs of `cargo test`.

use std::collections::{BTreeMap, BTreeSet};

use super::list::Mutant;
use crate::workspace::Member;

/// Mutants with the same tests, in the order in which they are tried: what least depends on first. To
/// put a mutant in and out again has all that depends on its crate built again.
pub fn groups<'a>(
    mutants: &[&'a Mutant],
    members: &[Member],
) -> Vec<(&'a [String], Vec<&'a Mutant>)> {
    let mut by_tests: BTreeMap<&[String], Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        by_tests.entry(&mutant.tests).or_default().push(mutant);
    }
    let mut groups: Vec<_> = by_tests.into_iter().collect();
    groups.sort_by_cached_key(|(_, mutants)| {
        mutants.iter().map(|mutant| dependents(role(&mutant.file), members)).max()
    });
    groups
}

/// The role of the crate that a file is of.
pub fn role(file: &str) -> &str {
    match file.split_once('/') {
        Some(("crates", rest)) => rest.split('/').nth(1).unwrap_or(rest),
        Some((folder, _)) => folder,
        None => file,
    }
}

/// Number of members that have to be built again where this one changes.
fn dependents(role: &str, members: &[Member]) -> usize {
    let mut changed = BTreeSet::from([role]);
    loop {
        let before = changed.len();
        for member in members {
            if member.edges.iter().any(|edge| changed.contains(&*edge.to)) {
                changed.insert(&member.role);
            }
        }
        if changed.len() == before {
            return before - 1;
        }
    }
}

/// The runs that some tests come to: where they name whole packages, a run for each of their test
/// programs, so that none is built behind one that fails; otherwise one.
pub fn runs(tests: &[String], members: &[Member]) -> Vec<Vec<String>> {
    let one = || vec![tests.to_vec()];
    let (pairs, rest) = tests.as_chunks::<2>();
    let mut runs = Vec::new();
    for [option, package] in pairs {
        let member = members.iter().find(|member| member.name == *package);
        let Some(member) = member.filter(|_| option == "-p") else { return one() };
        let of = |program: &Vec<String>| [&[option.clone(), package.clone()], &**program].concat();
        runs.extend(member.test_programs.iter().map(of));
    }
    if runs.is_empty() || !rest.is_empty() { one() } else { runs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::member;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn mutant(name: &str, file: &str, tests: &str) -> Mutant {
        let (breaks, from, to) = ("a rule".into(), "a".into(), "b".into());
        let (name, file, tests) = (name.into(), file.into(), words(tests));
        Mutant { name, breaks, file, from, to, tests }
    }

    #[test]
    fn packages_with_most_dependents_come_last() {
        let members = [
            member("domain", &[]),
            member("planner", &["domain"]),
            member("cli", &["dev planner"]),
        ];
        let domain = mutant("d", "crates/core/domain/src/dag.rs", "-p a");
        let planner = mutant("p", "crates/core/planner/src/lib.rs", "-p b");
        let client = mutant("c", "crates/client/cli/src/main.rs", "-p c");
        let other = mutant("o", "crates/client/cli/src/args.rs", "-p c");
        let order = groups(&[&domain, &planner, &client, &other], &members);
        let names: Vec<Vec<&str>> =
            order.iter().map(|(_, of)| of.iter().map(|m| &*m.name).collect()).collect();
        assert_eq!(names, [vec!["c", "o"], vec!["p"], vec!["d"]]);
        assert_eq!(dependents("domain", &members), 2, "tests depend on it too");
    }

    #[test]
    fn a_file_is_of_a_role() {
        assert_eq!(role("crates/core/planner/src/ledger.rs"), "planner");
        assert_eq!(role("integration/cdi/src/sync.rs"), "integration");
    }

    #[test]
    fn whole_packages_are_run_program_by_program() {
        let mut members = [member("planner", &[]), member("cli", &[])];
        members[0].test_programs = vec![words("--lib"), words("--test ledger")];
        members[1].test_programs = vec![words("--bin snicctl")];
        let texts = |tests: &str| -> Vec<String> {
            runs(&words(tests), &members).iter().map(|run| run.join(" ")).collect()
        };
        let planner = ["-p snic-planner --lib", "-p snic-planner --test ledger"];
        assert_eq!(texts("-p snic-planner"), planner);
        let both = [planner[0], planner[1], "-p snic-cli --bin snicctl"];
        assert_eq!(texts("-p snic-planner -p snic-cli"), both);
        for whole in ["-p snic-planner --lib", "-p elsewhere", "-p snic-planner rows::", "--lib"] {
            assert_eq!(texts(whole), [whole]);
        }
    }
}
