package wire

import "slices"

// logLevels are the eight severities of syslog, least severe first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// LogSeverity returns the rank of a log level, 0 for debug to 7 for emergency, and whether the
// level exists.
//
// Spec: server/utilities/logging#log-levels
func LogSeverity(level string) (rank int, ok bool) {
	rank = slices.Index(logLevels, level)
	return rank, rank >= 0
}
