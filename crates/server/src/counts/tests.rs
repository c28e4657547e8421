//! Counts of turns and what becomes of them.

use tidemark_protocol::resp::command::CommandId;
use tidemark_types::UnixMs;

use super::commands::Failures;
use super::*;

#[test]
fn a_turn_is_handed_over_once() {
    let tenant = TenantCounts::default();
    let mut turn = TurnCounts::default();
    turn.add(Count::Commands, 3);
    turn.hit_or_miss(true, Count::GetHits, Count::GetMisses);
    turn.hit_or_miss(false, Count::GetHits, Count::GetMisses);
    turn.add(Count::Connections, 1);
    let before = turn.before();
    turn.command(CommandId::Set, before);
    turn.command(CommandId::FlushAll, before);
    turn.command(CommandId::Set, before);
    turn.hand_over(&tenant);
    turn.hand_over(&tenant);
    let counts = [
        Count::Commands,
        Count::GetHits,
        Count::GetMisses,
        Count::Connections,
        Count::Sets,
    ];
    assert_eq!(counts.map(|count| tenant.get(count)), [3, 1, 1, 1, 0]);
    let calls = [CommandId::Get, CommandId::Set, CommandId::FlushAll];
    assert_eq!(calls.map(|id| tenant.commands().calls(id)), [0, 2, 1]);
    assert_eq!(tenant.resp_operations(), 3);
    tenant.reset();
    assert_eq!(
        (tenant.get(Count::Commands), tenant.commands().calls(CommandId::Set)),
        (0, 0)
    );
    assert_eq!(tenant.total(Count::Commands), 3, "bills are not reset");
    turn.add(Count::Commands, 2);
    turn.hand_over(&tenant);
    assert_eq!((tenant.get(Count::Commands), tenant.total(Count::Commands)), (2, 5));
    turn.add(Count::Commands, 7);
    let before = turn.before();
    turn.command(CommandId::Get, before);
    turn.discard();
    turn.hand_over(&tenant);
    assert_eq!(
        (tenant.get(Count::Commands), tenant.commands().calls(CommandId::Get)),
        (2, 0)
    );
}

#[test]
fn a_command_has_one_outcome() {
    let tenant = TenantCounts::default();
    let mut turn = TurnCounts::default();
    // Lookups that found something, and those that did not, and errors of each command.
    for (command, found, missed, failed) in [
        (CommandId::Get, 1, 0, 0),
        (CommandId::Get, 0, 1, 0),
        (CommandId::Get, 0, 1, 0),
        (CommandId::Del, 2, 1, 0),
        (CommandId::Del, 0, 3, 0),
        (CommandId::Set, 0, 0, 0),
        (CommandId::Set, 0, 1, 1),
    ] {
        let before = turn.before();
        (0..found).for_each(|_| turn.hit_or_miss(true, Count::GetHits, Count::GetMisses));
        (0..missed).for_each(|_| turn.hit_or_miss(false, Count::GetHits, Count::GetMisses));
        turn.add(Count::Errors, failed);
        turn.command(command, before);
    }
    for failed in [0, 1] {
        let before = turn.before();
        turn.add(Count::NoMemory, failed);
        turn.verb(1, before);
    }
    turn.hand_over(&tenant);
    turn.hand_over(&tenant);
    let counted: Vec<_> = tenant
        .executed()
        .iter()
        .map(|count| (count.protocol, count.command, count.outcome, count.count))
        .collect();
    let verb = VERBS[1];
    assert_eq!(
        counted,
        [
            ("memcached", verb, Outcome::Ok, 1),
            ("redis", "get", Outcome::Ok, 1),
            ("redis", "set", Outcome::Ok, 1),
            ("redis", "del", Outcome::Ok, 1),
            ("redis", "get", Outcome::Miss, 2),
            ("redis", "del", Outcome::Miss, 1),
            ("redis", "set", Outcome::Error, 1),
            ("memcached", verb, Outcome::Error, 1),
        ]
    );
    assert_eq!(tenant.resp_operations(), 7);
    let calls = [CommandId::Get, CommandId::Set, CommandId::Del];
    assert_eq!(calls.map(|id| tenant.commands().calls(id)), [3, 2, 2]);
}

#[test]
fn the_outcome_of_a_command_in_pieces_is_that_of_all() {
    let tenant = TenantCounts::default();
    let mut turn = TurnCounts::default();
    let look = |turn: &mut TurnCounts, hit| turn.hit_or_miss(hit, Count::GetHits, Count::GetMisses);
    // Whether each piece finds its key; another connection's command finds, and misses, one between them.
    for pieces in [[true, false], [false, true], [false, false]] {
        let mut so_far = Before::default();
        for hit in pieces {
            let before = turn.goes_on(so_far);
            look(&mut turn, hit);
            so_far = turn.so_far(before);
            for other in [true, false] {
                look(&mut turn, other);
            }
        }
        let before = turn.goes_on(so_far);
        turn.command(CommandId::MGet, before);
    }
    turn.hand_over(&tenant);
    let counted = tenant.executed();
    let counted: Vec<_> = counted
        .iter()
        .map(|count| (count.command, count.outcome, count.count))
        .collect();
    assert_eq!(counted, [("mget", Outcome::Ok, 2), ("mget", Outcome::Miss, 1)]);
}

#[test]
fn commands_of_another_front_are_counted_beside_the_own_ones() {
    let tenant = TenantCounts::default();
    tenant.add(Count::Commands, 4);
    for outcome in [Outcome::Ok, Outcome::Miss, Outcome::Ok] {
        tenant.neighbour_executed("s3", "get_object", outcome);
    }
    let counted: Vec<_> = tenant
        .executed()
        .iter()
        .map(|count| (count.protocol, count.command, count.outcome, count.count))
        .collect();
    let expected = [
        ("s3", "get_object", Outcome::Ok, 2),
        ("s3", "get_object", Outcome::Miss, 1),
    ];
    assert_eq!(counted, expected);
    let totals = [Count::Commands, Count::NeighbourCommands].map(|count| tenant.total(count));
    assert_eq!(totals, [4, 3]);
}

#[test]
fn errors_are_counted_by_code_and_by_command() {
    let counts = CommandCounts::default();
    let (get, set) = (&COMMANDS[0], &COMMANDS[1]);
    counts.note_error("ERR", Some(get), Stage::BeforeExecution);
    counts.note_error("OOM", Some(set), Stage::Execution);
    counts.note_error("ERR", Some(set), Stage::Execution);
    counts.note_error("ERR", None, Stage::BeforeExecution);
    let errors = counts.errors();
    assert_eq!(errors.by_code, [("ERR".to_owned(), 3), ("OOM".to_owned(), 1)]);
    let of_get = (get.id, Failures { rejected: 1, failed: 0 });
    assert_eq!(
        errors.by_command,
        [of_get, (set.id, Failures { rejected: 0, failed: 2 })]
    );
}

#[test]
fn rates_are_of_the_time_since_the_last_question() {
    let counts = CommandCounts::default();
    for (second, totals, rates) in [
        (10_000, [1_000, 0, 5], [0, 0, 0]),
        (12_000, [3_000, 10, 5], [1_000, 5, 0]),
        (12_500, [9_000, 10, 5], [1_000, 5, 0]),
        (16_000, [7_000, 10, 9], [1_000, 0, 1]),
        (17_000, [0, 0, 0], [0, 0, 0]),
    ] {
        assert_eq!(counts.rates(totals, UnixMs(second)), rates, "{second}");
    }
}
