// Package check defines the findings of the checks that explain why a store does not work: Check of
// package shared examines Redis, and Check of package postgres examines PostgreSQL.
package check

import "time"

// A Status is the result of a [Finding].
type Status string

// The results of a check.
const (
	OK      Status = "ok"
	Warn    Status = "warn"    // the store works, but may be slow, unprotected or lose data
	Fail    Status = "fail"    // the store does not work
	Skipped Status = "skipped" // a check before it failed
)

// A Finding is the result of a check, such as of the login. Its texts do not contain the password.
type Finding struct {
	Name   string
	Status Status
	Action string        // of the check, such as a connection
	Seen   []string      // the observations
	Next   string        // an instruction for the operator; may be empty
	Took   time.Duration // by the check
}
