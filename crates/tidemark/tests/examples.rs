//! Runs the library's examples: each asserts what it shows.

#[path = "../examples/choices.rs"]
mod choices;
#[path = "../examples/flash.rs"]
mod flash;
#[path = "../examples/goals.rs"]
mod goals;
#[path = "../examples/my_own_eviction_policy.rs"]
mod my_own_eviction_policy;
#[path = "../examples/ten_lines.rs"]
mod ten_lines;
#[path = "../examples/values.rs"]
mod values;

#[test]
fn ten_lines_are_enough() {
    ten_lines::main().unwrap();
}

#[test]
fn values_are_read_and_made_in_place() {
    values::main().unwrap();
}

#[test]
fn memory_follows_goals() {
    goals::main().unwrap();
}

#[test]
fn a_program_decides_and_is_told() {
    choices::main().unwrap();
}

#[test]
fn a_program_decides_what_goes() {
    my_own_eviction_policy::main().unwrap();
}

#[test]
fn what_memory_evicts_is_on_flash() {
    flash::main().unwrap();
}
