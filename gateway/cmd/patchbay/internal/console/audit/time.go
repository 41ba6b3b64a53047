package audit

import (
	"fmt"
	"time"
)

// layouts are the forms of times in the filter. Times without a zone are local.
var layouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04",
	time.DateOnly}

// parseTime returns the time of a text: a time, a date, or how long ago such as 24h; zero for "".
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("invalid time %.40q: must be a duration such as 24h, a date, or a time such as "+
		"2026-11-23 15:04", text)
}
