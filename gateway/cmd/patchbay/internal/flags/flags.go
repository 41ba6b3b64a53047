// Package flags contains the flags that every command takes.
package flags

import "time"

// Flags are the flags of all commands.
type Flags struct {
	JSON, Verbose, NoInput     bool
	Timeout                    time.Duration
	Revision, LogLevel, Save   string
	Config, Answers, Directory string
	Trace                      string
	SampleWith                 string
	Store                      []string // of serve and gateway
	CaCert                     string
	Header, Environment, Roots []string
	InsecureHTTP               bool
	Color                      Choice
}
