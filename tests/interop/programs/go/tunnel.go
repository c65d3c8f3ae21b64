package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
)

// tunnel gives a loopback address that leads to a server through TLS, for as long as this program
// runs: no released version of the client can speak TLS by itself.
func tunnel(server, trusted string) (string, error) {
	pem, err := os.ReadFile(trusted)
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return "", errors.New("no certificate in " + trusted)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			plain, err := listener.Accept()
			if err != nil {
				return
			}
			go carry(plain, server, &tls.Config{RootCAs: roots})
		}
	}()
	return listener.Addr().String(), nil
}

// carry copies both ways until either side ends, then ends both.
func carry(plain net.Conn, server string, config *tls.Config) {
	defer plain.Close()
	secret, err := tls.Dial("tcp", server, config)
	if err != nil {
		return
	}
	defer secret.Close()
	over := make(chan struct{}, 2)
	copyAll := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		over <- struct{}{}
	}
	go copyAll(secret, plain)
	go copyAll(plain, secret)
	<-over
}
