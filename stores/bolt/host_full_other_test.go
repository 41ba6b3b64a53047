//go:build !linux

package bolt_test

func fillState(string) {}
