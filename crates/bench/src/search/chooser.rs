//! The choice of the values that are tried next.

use super::space::{Choices, Space, SpaceOption};
use anyhow::{Result, anyhow};
use optimizer::param::ParamValue;
use optimizer::parameter::{CategoricalParam, IntParam, Parameter};
use optimizer::sampler::tpe::TpeSampler;
use optimizer::{Direction, Study, Trial};
use std::collections::HashMap;

/// Trials at random, before the sampler has something to go by.
const AT_RANDOM: usize = 8;

/// Points that the sampler is asked for, before the first one that was not tried is taken.
const ASKED: usize = 64;

/// A score below this counts as this: that of a load which stands still has no logarithm.
const LEAST: f64 = 1e-6;

/// A sampler that learns by scores. The greater a score, the better.
pub(super) struct Chooser {
    space: Space,
    dials: Vec<Dial>,
    study: Study<f64>,
}

/// A choice whose score is not known yet.
pub(super) struct Choice {
    /// The values, in the order of the space's options.
    pub(super) values: Vec<String>,
    asked: Trial,
}

/// A parameter of the sampler for an option.
enum Dial {
    Values(CategoricalParam<String>, Vec<String>),
    Range(IntParam),
}

impl Dial {
    fn new(option: &SpaceOption) -> Dial {
        match &option.choices {
            Choices::Values { values } => {
                Dial::Values(CategoricalParam::new(values.clone()).name(&option.name), values.clone())
            }
            Choices::Range { from, to, log } => {
                let range = IntParam::new(*from, *to).name(&option.name);
                Dial::Range(if *log { range.log_scale() } else { range })
            }
        }
    }

    fn suggest(&self, asked: &mut Trial) -> Result<String> {
        let value = match self {
            Dial::Values(param, _) => param.suggest(asked),
            Dial::Range(param) => param.suggest(asked).map(|value| value.to_string()),
        };
        value.map_err(|why| anyhow!("the sampler: {why}"))
    }
}

impl Chooser {
    /// A chooser that draws by `seed`.
    pub(super) fn new(space: &Space, seed: u64) -> Result<Chooser> {
        let sampler = TpeSampler::builder().n_startup_trials(AT_RANDOM).seed(seed).build();
        let sampler = sampler.map_err(|why| anyhow!("the sampler: {why}"))?;
        // This sampler calls small values good, whatever the direction of the study.
        let study = Study::with_sampler(Direction::Minimize, sampler);
        let dials = space.options.iter().map(Dial::new).collect();
        Ok(Chooser { space: space.clone(), dials, study })
    }

    /// The values that are to be tried next, of those that were not; nothing: all of the space were.
    pub(super) fn next_untried(&self, is_tried: impl Fn(&[String]) -> bool) -> Result<Option<Choice>> {
        for _ in 0..ASKED {
            let choice = self.next()?;
            if !is_tried(&choice.values) {
                return Ok(Some(choice));
            }
            // Its score is known already.
            self.tell(choice, None);
        }
        let mut points = (0..self.space.points()).map(|number| self.space.point(number));
        match points.find(|values| !is_tried(values)) {
            Some(values) => {
                self.enqueue(&values)?;
                self.next().map(Some)
            }
            None => Ok(None),
        }
    }

    /// The values that are to be tried next.
    fn next(&self) -> Result<Choice> {
        let mut asked = self.study.ask();
        let values = self.dials.iter().map(|dial| dial.suggest(&mut asked)).collect::<Result<_>>()?;
        Ok(Choice { values, asked })
    }

    /// The score of a choice, above zero; nothing: it does not count.
    pub(super) fn tell(&self, choice: Choice, score: Option<f64>) {
        match score {
            // Scores are ratios: half as good is as far from the default as twice as good.
            Some(score) => self.study.tell(choice.asked, Ok::<f64, &str>(-score.max(LEAST).ln())),
            None => self.study.tell(choice.asked, Err::<f64, _>("it does not count")),
        }
    }

    /// A choice of before, with its score; nothing: it did not count.
    pub(super) fn replay(&self, values: &[String], score: Option<f64>) -> Result<()> {
        self.enqueue(values)?;
        let choice = self.next()?;
        self.tell(choice, score);
        Ok(())
    }

    /// Has these be the next.
    fn enqueue(&self, values: &[String]) -> Result<()> {
        let mut known = HashMap::new();
        for (dial, value) in self.dials.iter().zip(values) {
            match dial {
                Dial::Values(param, all) => {
                    let at = all.iter().position(|it| it == value);
                    let at =
                        at.ok_or_else(|| anyhow!("the record has a value that the space has not: {value}"))?;
                    known.insert(param.id(), ParamValue::Categorical(at));
                }
                Dial::Range(param) => {
                    known.insert(param.id(), ParamValue::Int(value.parse()?));
                }
            }
        }
        self.study.enqueue(known);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Best at 8192 of 1 to 1,000,000, and with `b` of three.
    fn score(values: &[String]) -> f64 {
        let number: f64 = values[0].parse().expect("a number");
        let of_name = if values[1] == "b" { 1.0 } else { 0.6 };
        of_name / (1.0 + (number / 8192.0).ln().abs())
    }

    fn space() -> Space {
        let text = "version = 1\n[[option]]\nwho = \"osd\"\nname = \"one\"\nfrom = 1\nto = 1000000\nlog = true\n\
                    [[option]]\nwho = \"osd\"\nname = \"two\"\nvalues = [\"a\", \"b\", \"c\"]\n";
        Space::read(text).expect("a space")
    }

    #[test]
    fn values_that_a_cluster_refuses_are_seldom_tried_again() {
        for seed in 1..=5 {
            let chooser = Chooser::new(&space(), seed).expect("a sampler");
            let mut refused = Vec::new();
            for _ in 0..40 {
                let choice = chooser.next().expect("values");
                let is_refused = choice.values[1] == "a";
                let score = if is_refused { 0.0 } else { score(&choice.values) };
                refused.push(is_refused);
                chooser.tell(choice, Some(score));
            }
            let late = refused[20..].iter().filter(|it| **it).count();
            assert!(late <= 5, "seed {seed}: {late} of 20");
        }
    }

    #[test]
    fn no_point_is_tried_twice_and_a_space_is_used_up() {
        let text = "version = 1\n[[option]]\nwho = \"osd\"\nname = \"one\"\nfrom = 1\nto = 4\n\
                    [[option]]\nwho = \"osd\"\nname = \"two\"\nvalues = [\"a\", \"b\", \"c\"]\n";
        let space = Space::read(text).expect("a space");
        for seed in 1..=5 {
            let chooser = Chooser::new(&space, seed).expect("a sampler");
            let mut tried: Vec<Vec<String>> = Vec::new();
            for _ in 0..12 {
                let is_tried = |it: &[String]| tried.iter().any(|had| had == it);
                let choice = chooser.next_untried(is_tried).expect("values").expect("a point is left");
                assert!(!is_tried(&choice.values), "seed {seed}: {:?} is tried twice", choice.values);
                tried.push(choice.values.clone());
                chooser.tell(choice, Some(1.0));
            }
            let left = chooser.next_untried(|it| tried.iter().any(|had| had == it)).expect("values");
            assert!(left.is_none(), "seed {seed}: the space is used up");
        }
    }

    #[test]
    fn later_choices_are_better_than_those_at_random() {
        for seed in 1..=5 {
            let chooser = Chooser::new(&space(), seed).expect("a sampler");
            let mut scores = Vec::new();
            for _ in 0..40 {
                let choice = chooser.next().expect("values");
                scores.push(score(&choice.values));
                chooser.tell(choice, scores.last().copied());
            }
            let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
            let (random, late) = (mean(&scores[..AT_RANDOM]), mean(&scores[20..]));
            assert!(late > random * 1.2, "seed {seed}: {random} at random, {late} later");
        }
    }

    #[test]
    fn a_record_teaches_as_much_as_the_trials_did() {
        let first = Chooser::new(&space(), 3).expect("a sampler");
        let again = Chooser::new(&space(), 3).expect("a sampler");
        for _ in 0..20 {
            let choice = first.next().expect("values");
            let (values, score) = (choice.values.clone(), score(&choice.values));
            first.tell(choice, Some(score));
            again.replay(&values, Some(score)).expect("it is known");
        }
        let near = (0..10).filter(|_| {
            let choice = again.next().expect("values");
            let is_near = score(&choice.values) > 0.3;
            again.tell(choice, Some(is_near.into()).map(|it: u8| f64::from(it).max(0.1)));
            is_near
        });
        assert!(near.count() >= 5, "it goes on where the record ended");
    }
}
