//! The flags of `tidemark serve`: made of the rows of [`OPTIONS`], and three of their own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::options::{Availability, OPTIONS, OptionSpec};

/// The command line as it was written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args {
    /// The flags by the option's key.
    pub(super) flags: BTreeMap<&'static str, String>,
    pub(super) config: Option<PathBuf>,
    pub(super) check_config: bool,
    pub(super) print_config: bool,
}

fn argument(option: &'static OptionSpec) -> Arg {
    let default = option.default.filter(|_| !option.value_name.is_empty());
    let default = default.map_or_else(String::new, |text| format!(" [default: {text}]"));
    let argument = Arg::new(option.key)
        .long(option.key.replace('_', "-"))
        .help(format!("{}{default} [env: {}]", option.help, option.variable()))
        .hide(option.availability == Availability::Later);
    if option.value_name.is_empty() {
        argument.action(ArgAction::SetTrue)
    } else if option.is_list() {
        argument.value_name(option.value_name).action(ArgAction::Append)
    } else {
        argument.value_name(option.value_name)
    }
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let switch =
            |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help).action(ArgAction::SetTrue);
        command
            .arg(
                Arg::new("config")
                    .long("config")
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .help("Options in TOML; see tidemark.example.toml [env: TIDEMARK_CONFIG]"),
            )
            .args(OPTIONS.iter().map(argument))
            .arg(switch("check-config", "Check the options and end"))
            .arg(switch(
                "print-config",
                "Print the options in force and where each is from, and end",
            ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |option: &'static OptionSpec| {
            let text = if option.value_name.is_empty() {
                matches.get_flag(option.key).then(|| "true".to_owned())
            } else if option.is_list() {
                let texts = matches.get_many::<String>(option.key);
                texts.map(|texts| texts.map(String::as_str).collect::<Vec<_>>().join(","))
            } else {
                matches.get_one::<String>(option.key).cloned()
            };
            Some((option.key, text?))
        };
        Ok(Self {
            flags: OPTIONS.iter().filter_map(given).collect(),
            config: matches.get_one("config").cloned(),
            check_config: matches.get_flag("check-config"),
            print_config: matches.get_flag("print-config"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
