// Package driver contains what programs need that implement transports, or forward messages they do
// not produce themselves: the names of revisions, methods and notifications.
package driver
