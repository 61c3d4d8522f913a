package kube

import ()
