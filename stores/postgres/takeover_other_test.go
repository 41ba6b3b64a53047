//go:build !unix

package postgres_test

func serveTasks() bool { return false }
