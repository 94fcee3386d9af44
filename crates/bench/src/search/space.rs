//! The space of a search, as an operator writes it.

use serde::{Deserialize, Serialize};

/// The version of the file.
const VERSION: u32 = 1;
/// The most options of one search: more need more trials than anybody waits for.
const MOST: usize = 12;

/// Options, each with the values that it may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// 1.
    pub version: u32,
    /// The options.
    #[serde(rename = "option")]
    pub options: Vec<SpaceOption>,
}

/// An option of a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct SpaceOption {
    /// The section, which may have a mask: `osd`.
    pub who: String,
    /// Its name.
    pub name: String,
    /// Its values.
    pub choices: Choices,
}

/// The values that an option may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choices {
    /// One of these.
    Values {
        /// The values.
        values: Vec<String>,
    },
    /// A whole number of this range.
    Range {
        /// The least.
        from: i64,
        /// The greatest.
        to: i64,
        /// True: the search goes by its logarithm.
        log: bool,
    },
}

impl Choices {
    /// The number of values; one that is named twice counts once.
    fn count(&self) -> u128 {
        match self {
            Choices::Values { values } => distinct(values).len() as u128,
            Choices::Range { from, to, .. } => (i128::from(*to) - i128::from(*from)) as u128 + 1,
        }
    }

    /// The value of this number, from 0. There must be more than so many.
    fn nth(&self, number: u128) -> String {
        match self {
            Choices::Values { values } => distinct(values)[number as usize].clone(),
            Choices::Range { from, .. } => (i128::from(*from) + number as i128).to_string(),
        }
    }

    /// The values that are named; of a range both ends.
    pub fn values(&self) -> Vec<String> {
        match self {
            Choices::Values { values } => values.clone(),
            Choices::Range { from, to, .. } => [from, to].map(i64::to_string).to_vec(),
        }
    }
}

fn distinct(values: &[String]) -> Vec<&String> {
    let is_first = |(at, value): &(usize, &String)| !values[..*at].contains(value);
    values.iter().enumerate().filter(is_first).map(|(_, value)| value).collect()
}

/// An option as it is written: a flattened [`Choices`] would refuse its own fields, since serde has
/// no unknown fields beside flattened ones.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    who: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<bool>,
}

impl TryFrom<Written> for SpaceOption {
    type Error = String;

    fn try_from(it: Written) -> Result<SpaceOption, String> {
        let choices = match (it.values, it.from, it.to, it.log) {
            (Some(values), None, None, None) => Choices::Values { values },
            (None, Some(from), Some(to), log) => Choices::Range { from, to, log: log.unwrap_or_default() },
            _ => return Err(format!("{} needs either values, or from and to", it.name)),
        };
        Ok(SpaceOption { who: it.who, name: it.name, choices })
    }
}

impl From<SpaceOption> for Written {
    fn from(it: SpaceOption) -> Written {
        let bare = Written { who: it.who, name: it.name, ..Written::default() };
        match it.choices {
            Choices::Values { values } => Written { values: Some(values), ..bare },
            Choices::Range { from, to, log } => {
                Written { from: Some(from), to: Some(to), log: Some(log), ..bare }
            }
        }
    }
}

impl Space {
    /// The number of points: of all values of each option with all of the others.
    pub fn points(&self) -> u128 {
        self.options.iter().map(|it| it.choices.count()).fold(1, u128::saturating_mul)
    }

    /// The values of the point of this number, from 0.
    ///
    /// # Panics
    /// If there are no more than so many.
    pub fn point(&self, number: u128) -> Vec<String> {
        let mut left = number;
        let one = |it: &SpaceOption| {
            let count = it.choices.count();
            let value = it.choices.nth(left % count);
            left /= count;
            value
        };
        self.options.iter().map(one).collect()
    }

    /// Reads a space.
    ///
    /// # Errors
    /// If it is none, or holds nothing to search; the reason.
    pub fn read(text: &str) -> Result<Space, String> {
        let space: Space = toml::from_str(text).map_err(|why| {
            // A refusal is one line.
            why.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ")
        })?;
        if space.version != VERSION {
            return Err(format!("its version is {}, and this program reads {VERSION}", space.version));
        }
        if space.options.is_empty() || space.options.len() > MOST {
            return Err(format!("it has {} options, and 1 to {MOST} are searched", space.options.len()));
        }
        for (at, option) in space.options.iter().enumerate() {
            let name = &option.name;
            match &option.choices {
                Choices::Values { values } if values.len() < 2 => {
                    return Err(format!("{name} has fewer than two values"));
                }
                Choices::Range { from, to, .. } if from >= to => {
                    return Err(format!("{name}: {from} is not below {to}"));
                }
                Choices::Range { from, log: true, .. } if *from < 1 => {
                    return Err(format!("{name}: a logarithm needs a range from 1 on"));
                }
                _ => {}
            }
            let same = |it: &SpaceOption| (&it.who, &it.name) == (&option.who, name);
            if space.options[..at].iter().any(same) {
                return Err(format!("{name} of {} is there twice", option.who));
            }
        }
        Ok(space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_of_a_space_has_a_number() {
        let text = "version = 1\n[[option]]\nwho = \"osd\"\nname = \"a\"\nvalues = [\"x\", \"y\", \"x\"]\n\
                    [[option]]\nwho = \"osd\"\nname = \"b\"\nfrom = -1\nto = 1\n";
        let space = Space::read(text).expect("a space");
        let all: Vec<String> = (0..space.points()).map(|number| space.point(number).join("")).collect();
        assert_eq!(all, ["x-1", "y-1", "x0", "y0", "x1", "y1"]);
        let whole =
            text.replace("-1", &i64::MIN.to_string()).replace("to = 1", &format!("to = {}", i64::MAX));
        let space = Space::read(&whole).expect("a space");
        assert_eq!(space.points(), 2 << 64);
        assert_eq!(space.point(space.points() - 1), ["y".to_owned(), i64::MAX.to_string()]);
    }

    #[test]
    fn a_space_is_read_and_a_wrong_one_refused_with_the_option() {
        let good = "version = 1\n[[option]]\nwho = \"osd\"\nname = \"a\"\nvalues = [\"1\", \"2\"]\n\
                    [[option]]\nwho = \"osd\"\nname = \"b\"\nfrom = 1\nto = 64\nlog = true\n";
        let space = Space::read(good).expect("a space");
        assert_eq!(space.options[1].choices, Choices::Range { from: 1, to: 64, log: true });
        let values = |at: usize| space.options[at].choices.values().join(" ");
        assert_eq!((values(0), values(1)), ("1 2".to_owned(), "1 64".to_owned()));
        for (bad, word) in [
            ("version = 2\noption = []\n".to_owned(), "version"),
            ("version = 1\noption = []\n".to_owned(), "0 options"),
            (good.replace("to = 64", "to = 1"), "b: 1 is not below 1"),
            (good.replace("from = 1", "from = 0"), "logarithm"),
            (good.replace("[\"1\", \"2\"]", "[\"1\"]"), "fewer than two"),
            (good.replace("\"b\"", "\"a\""), "twice"),
            (good.replace("name = \"b\"", "nam = \"b\""), "nam"),
            (good.replace("to = 64\n", ""), "b needs either values, or from and to"),
            (good.replace("to = 64", "to = 64\nvalues = [\"1\", \"2\"]"), "b needs either"),
        ] {
            let why = Space::read(&bad).expect_err("refused");
            assert!(why.contains(word), "{word}: {why}");
        }
    }
}
