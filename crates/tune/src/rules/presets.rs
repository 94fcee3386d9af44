//! Settings of articles as they stand there, each with the rule that judges it.

use super::bad::{BadRules, VERSION};
use super::rule::Target;
use serde::{Deserialize, Serialize};

/// The settings of an article.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its name: `article-bluestore`.
    pub name: String,
    /// The article.
    pub title: String,
    /// What it measured, and what the preset leaves out.
    pub about: String,
    /// Its settings.
    #[serde(rename = "set")]
    pub sets: Vec<PresetSet>,
}

/// A setting of an article.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetSet {
    /// The kind of place.
    pub target: Target,
    /// The place; `*`: every host or interface.
    pub who: String,
    /// The name there.
    pub key: String,
    /// The value, literally.
    pub value: String,
    /// The rule that judges it.
    pub rule: String,
    /// The releases on which that rule refuses it, and why.
    pub label: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(rename = "preset")]
    presets: Vec<Preset>,
}

impl Preset {
    /// All of them. `is_rule` says whether there is a rule of a name.
    ///
    /// # Errors
    /// If the file cannot be used, or names a rule that is none: the program was built wrong.
    pub fn all(is_rule: impl Fn(&str) -> bool) -> Result<Vec<Preset>, BadRules> {
        let bad = |why: String| BadRules { file: "presets.toml".to_owned(), why };
        let file: File =
            toml::from_str(include_str!("../../rules/presets.toml")).map_err(|why| bad(why.to_string()))?;
        if file.version != VERSION {
            return Err(bad(format!("version {VERSION} is wanted")));
        }
        let mut sets = file.presets.iter().flat_map(|preset| &preset.sets);
        match sets.find(|set| !is_rule(&set.rule)) {
            Some(set) => Err(bad(format!("{}: there is no rule {}", set.key, set.rule))),
            None => Ok(file.presets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{OptionTable, Rules};

    #[test]
    fn presets_name_rules_and_options_that_are_there() {
        let rules = Rules::new().expect("rules");
        let all = Preset::all(|id| rules.find(id).is_some()).expect("presets");
        let names: Vec<_> = all.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["article-bluestore", "article-arm"]);
        for set in all.iter().flat_map(|it| &it.sets).filter(|it| it.target == Target::Config) {
            let knows =
                |release: &&str| OptionTable::of(release).is_some_and(|table| table.find(&set.key).is_some());
            assert!(["16", "18", "20"].iter().any(knows), "{}", set.key);
        }
    }
}
