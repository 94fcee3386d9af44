//! Rules as data: the files of `crates/tune/rules`, read and compiled.

mod bad;
mod check;
mod compiled;
mod keys;
mod options;
mod presets;
mod rule;

pub use bad::BadRules;
pub use compiled::CompiledRule;
pub use options::{KnownOption, OptionTable};
pub use presets::{Preset, PresetSet};
pub use rule::{
    Acts, DefaultValue, Evidence, Goal, Kind, Observe, Range, Risk, Rule, RuleOption, Set, Standing, State,
    Subject, Target, Workload,
};

use crate::expression::{Expression, Template};
use bad::VERSION;
use compiled::CompiledSet;
use rule::File;
use std::sync::OnceLock;

/// The files of the program, with their groups.
const FILES: [(&str, &str); 10] = [
    ("memory", include_str!("../../rules/memory.toml")),
    ("bluestore", include_str!("../../rules/bluestore.toml")),
    ("osd", include_str!("../../rules/osd.toml")),
    ("network", include_str!("../../rules/network.toml")),
    ("cpu", include_str!("../../rules/cpu.toml")),
    ("block", include_str!("../../rules/block.toml")),
    ("client", include_str!("../../rules/client.toml")),
    ("cache", include_str!("../../rules/cache.toml")),
    ("hardware", include_str!("../../rules/hardware.toml")),
    ("method", include_str!("../../rules/method.toml")),
];

/// All rules.
#[derive(Debug)]
pub struct Rules(Vec<CompiledRule>);

impl Rules {
    /// The rules of this program.
    ///
    /// # Errors
    /// If a file cannot be used: the program was built wrong.
    pub fn new() -> Result<Rules, BadRules> {
        Rules::from(&FILES)
    }

    fn from(files: &[(&str, &str)]) -> Result<Rules, BadRules> {
        let mut all = Vec::new();
        for (name, text) in files {
            let bad = |why: String| BadRules { file: format!("{name}.toml"), why };
            let file: File = toml::from_str(text).map_err(|why| bad(why.to_string()))?;
            if file.version != VERSION || file.group != *name {
                return Err(bad(format!("version {VERSION} and group {name} are wanted")));
            }
            for mut rule in file.rules {
                rule.group.clone_from(&file.group);
                let id = rule.id.clone();
                all.push(compile(rule).map_err(|why| bad(format!("{id}: {why}")))?);
            }
        }
        let rules = Rules(all);
        check::whole(&rules.0).map_err(|why| BadRules { file: "all files".to_owned(), why })?;
        Ok(rules)
    }

    /// The rule of this name, in any case.
    pub fn find(&self, id: &str) -> Option<&CompiledRule> {
        self.0.iter().find(|compiled| compiled.rule.id.eq_ignore_ascii_case(id))
    }

    /// All of them, in the order of their files.
    pub fn iter(&self) -> impl Iterator<Item = &CompiledRule> {
        self.0.iter()
    }
}

/// True if a rule or a preset names this place of a host's kernel, with any facts in it.
pub fn is_key(target: Target, key: &str) -> bool {
    static ALL: OnceLock<Vec<(Target, String)>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        // A program whose files cannot be used knows no place.
        let files = FILES.iter().filter_map(|(_, text)| toml::from_str::<File>(text).ok());
        let of_rules = files.flat_map(|file| file.rules).flat_map(|rule| rule.sets);
        let of_rules = of_rules.map(|set| (set.target, set.key));
        let presets = Preset::all(|_| true).unwrap_or_default();
        let of_presets = presets.into_iter().flat_map(|it| it.sets).map(|set| (set.target, set.key));
        of_rules.chain(of_presets).map(|(target, key)| (target, keys::pattern(&key))).collect()
    });
    all.iter().any(|(of, pattern)| *of == target && keys::is_of(pattern, key))
}

fn compile(rule: Rule) -> Result<CompiledRule, String> {
    check::one(&rule)?;
    let within = |what: &str| {
        let what = what.to_owned();
        move |why: String| format!("{what}: {why}")
    };
    let when = Expression::new(&rule.when).map_err(within("when"))?;
    let reason = Template::new(&rule.reason).map_err(within("reason"))?;
    let sets = rule.sets.iter().map(|set| {
        Ok(CompiledSet {
            who: Template::new(&set.who).map_err(within("who"))?,
            key: Template::new(&set.key).map_err(within("key"))?,
            value: set.value.as_deref().map(Expression::new).transpose().map_err(within(&set.key))?,
            set: set.clone(),
        })
    });
    let sets = sets.collect::<Result<Vec<_>, String>>()?;
    let compiled = CompiledRule { when, reason, sets, rule };
    check::names(&compiled)?;
    Ok(compiled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::rule::State;

    fn refused(text: &str) -> String {
        Rules::from(&[("osd", text)]).expect_err("refused").why
    }

    const RULE: &str = r#"
        version = 1
        group = "osd"
        title = "OSDs"
        [[rule]]
        id = "OSD-99"
        title = "A rule"
        kind = "set"
        subject = "osd"
        risk = "online"
        releases = { from = 12, to = 20 }
        goals = []
        workloads = []
        articles = []
        when = "release >= 16"
        reason = "osd.{it.id} is so."
        expect = "An effect."
        cost = "Nothing."
        verify = "Look."
        evidence = [ { text = "It was so.", source = "Somebody" } ]
        [[rule.set]]
        target = "config"
        who = "osd"
        key = "osd_memory_target"
        value = "4 * GiB"
        observe = "option"
        [rule.release.16]
        state = "same"
        [rule.release.18]
        state = "same"
        [rule.release.20]
        state = "same"
        [[rule.option]]
        name = "osd_memory_target"
        defaults = [ { from = 12, to = 20, value = "4294967296" } ]
        acts = { 16 = "live", 18 = "live", 20 = "live" }
    "#;

    #[test]
    fn the_rules_of_the_program_can_be_used() {
        let rules = Rules::new().expect("rules");
        assert!(rules.iter().count() >= 130);
        assert!(rules.find("mem-01").is_some());
        for release in ["16", "18", "20"] {
            let is_said = |c: &CompiledRule| c.rule.release.contains_key(release);
            assert!(rules.iter().all(is_said), "a rule says nothing of {release}");
        }
    }

    #[test]
    fn a_rule_is_read_whole() {
        let rules = Rules::from(&[("osd", RULE)]).expect("rules");
        let rule = &rules.find("OSD-99").expect("the rule").rule;
        assert_eq!((rule.group.as_str(), rule.release["18"].state), ("osd", State::Same));
    }

    #[test]
    fn what_a_rule_names_must_be_there() {
        assert!(
            refused(&RULE.replace("osd_memory_target", "osd_memory_targets")).contains("osd_memory_targets")
        );
        assert!(refused(&RULE.replace("release >= 16", "releas >= 16")).contains("releas"));
        assert!(refused(&RULE.replace("{it.id}", "{it.id")).contains("not closed"));
        assert!(refused(&RULE.replace("kind = \"set\"", "kind = \"check\"")).contains("sets"));
        assert!(refused(&RULE.replace("value = \"4 * GiB\"", "")).contains("value"));
        assert!(refused(&RULE.replace("[rule.release.18]", "[rule.release.17]")).contains("18"));
        assert!(refused(&RULE.replace("A rule", &"word ".repeat(20))).contains("60"));
        assert!(refused(&RULE.replace("version = 1", "version = 2")).contains("version"));
        assert!(refused(&RULE.replace("risk = \"online\"", "danger = \"none\"")).contains("danger"));
    }

    #[test]
    fn a_name_is_given_once() {
        let second = RULE.split_once("[[rule]]").expect("a rule").1;
        assert!(refused(&format!("{RULE}\n[[rule]]{second}")).contains("OSD-99 is there twice"));
    }
}
