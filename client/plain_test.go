//go:build !ofi || !cgo

package client_test

var fabricArgs []string

const fabricConn = "*tcp."
