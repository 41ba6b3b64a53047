//go:build !unix

package testhome

func setUmask() {} // there is no umask
