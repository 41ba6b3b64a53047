package cli

import "time"

// flags are the flags of all commands.
type flags struct {
	json, verbose, noInput     bool
	timeout                    time.Duration
	revision, logLevel, save   string
	config, answers, directory string
	trace                      string
	sampleWith                 string
	caCert                     string
	header, environment, roots []string
	insecureHTTP               bool
	color                      choiceFlag
}
