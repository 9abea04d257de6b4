	.file	"<string>"
	.section	.text.unlikely.,"ax",@progbits
	.p2align	4
	.type	safepoint,@function
safepoint:
	pushq	%rbx
	movq	$134217728, (%rdi)
	movq	16(%rdi), %rbx
	testq	%rbx, %rbx
	je	.LBB0_3
	movq	(%rbx), %rcx
	movb	$1, %al
	testq	%rcx, %rcx
	je	.LBB0_3
.LBB0_2:
	popq	%rbx
	retq
.LBB0_3:
	movq	8(%rdi), %rdi
	testq	%rdi, %rdi
	je	.LBB0_7
	callq	*(%rdi)
	movq	%rax, %rcx
	testq	%rax, %rax
	setne	%al
	negb	%al
	testq	%rcx, %rcx
	je	.LBB0_2
	testq	%rbx, %rbx
	je	.LBB0_2
	movq	$1, (%rbx)
	movb	$1, %al
	popq	%rbx
	retq
.LBB0_7:
	xorl	%eax, %eax
	popq	%rbx
	retq
.Lfunc_end0:
	.size	safepoint, .Lfunc_end0-safepoint

	.text
	.p2align	4
	.type	kernel.k7,@function
kernel.k7:
	movl	$64, %eax
	xorl	%ecx, %ecx
	.p2align	4
.LBB1_1:
	vmovups	-64(%rdi,%rax), %zmm0
	vmovups	%zmm0, -64(%rsi,%rax)
	vmovups	(%rdi,%rax), %zmm0
	vmovups	%zmm0, (%rsi,%rax)
	incq	%rcx
	subq	$-128, %rax
	cmpq	$256, %rcx
	jl	.LBB1_1
	vzeroupper
	retq
.Lfunc_end1:
	.size	kernel.k7, .Lfunc_end1-kernel.k7

	.p2align	4
	.type	kernel.k22,@function
kernel.k22:
	pushq	%rbp
	pushq	%r15
	pushq	%r14
	pushq	%r13
	pushq	%r12
	pushq	%rbx
	subq	$88, %rsp
	movq	%rdx, %rbx
	movq	144(%rsp), %r11
	leaq	10244(%rdi), %rax
	movq	%rax, 72(%rsp)
	addq	$3274764, %rdi
	xorl	%edx, %edx
	movabsq	$-6148914691236517205, %r10
	movl	%r9d, %eax
	notb	%al
	movzbl	%al, %r12d
	andl	$1, %r12d
	shll	$18, %r12d
	jmp	.LBB2_2
	.p2align	4
.LBB2_1:
	addq	$786432, 72(%rsp)
	movq	32(%rsp), %rax
	movq	%rax, %rdx
	cmpq	$1600, %rax
	jge	.LBB2_19
.LBB2_2:
	leaq	384(%rdx), %rax
	movq	%rax, 32(%rsp)
	xorl	%eax, %eax
	movq	%rdx, 40(%rsp)
	jmp	.LBB2_4
	.p2align	4
.LBB2_3:
	movq	80(%rsp), %rax
	incq	%rax
	cmpq	$32, %rax
	movq	40(%rsp), %rdx
	jge	.LBB2_1
.LBB2_4:
	movl	$31, %r8d
	subq	%rax, %r8
	testb	$1, %r9b
	movq	%rax, 80(%rsp)
	cmoveq	%rax, %r8
	movq	%r8, 64(%rsp)
	movq	32(%rsp), %rax
	cmpq	$1596, %rax
	movl	$1596, %r8d
	cmovlq	%rax, %r8
	movq	%r8, 56(%rsp)
	cmpq	%r8, %rdx
	jge	.LBB2_11
	movq	64(%rsp), %rbp
	movq	%rbp, %rax
	shlq	$17, %rax
	addq	%rsi, %rax
	movq	%rax, 48(%rsp)
	shlq	$8, %rbp
	movq	72(%rsp), %r13
	movq	40(%rsp), %r15
	.p2align	4
.LBB2_6:
	movq	%r15, %rdx
	mulxq	%r10, %r14, %r14
	addq	$-2382336, (%r11)
	js	.LBB2_10
.LBB2_7:
	shrq	%r14
	andq	$-128, %r14
	leaq	(%r14,%r14,2), %rax
	movq	%r15, %rdx
	subq	%rax, %rdx
	imulq	$715827883, %rdx, %rax
	shrq	$32, %rax
	shll	$6, %eax
	vxorps	%xmm20, %xmm20, %xmm20
	addq	%r12, %rax
	movq	48(%rsp), %rdx
	xorl	%r8d, %r8d
	vxorps	%xmm23, %xmm23, %xmm23
	vxorps	%xmm22, %xmm22, %xmm22
	vxorps	%xmm21, %xmm21, %xmm21
	vxorps	%xmm19, %xmm19, %xmm19
	vxorps	%xmm18, %xmm18, %xmm18
	vxorps	%xmm17, %xmm17, %xmm17
	vxorps	%xmm16, %xmm16, %xmm16
	vxorps	%xmm15, %xmm15, %xmm15
	vxorps	%xmm14, %xmm14, %xmm14
	vxorps	%xmm13, %xmm13, %xmm13
	vxorps	%xmm12, %xmm12, %xmm12
	vxorps	%xmm11, %xmm11, %xmm11
	vxorps	%xmm10, %xmm10, %xmm10
	vxorps	%xmm9, %xmm9, %xmm9
	vxorps	%xmm8, %xmm8, %xmm8
	vxorps	%xmm7, %xmm7, %xmm7
	vxorps	%xmm6, %xmm6, %xmm6
	vxorps	%xmm5, %xmm5, %xmm5
	vxorps	%xmm4, %xmm4, %xmm4
	vxorps	%xmm3, %xmm3, %xmm3
	vxorps	%xmm2, %xmm2, %xmm2
	vxorps	%xmm1, %xmm1, %xmm1
	vxorps	%xmm0, %xmm0, %xmm0
	.p2align	4
.LBB2_8:
	prefetcht1	-131072(%rdx,%rax)
	vbroadcastss	-10244(%r13,%r8,4), %zmm24
	vmovaps	(%rdx), %zmm25
	vmovaps	64(%rdx), %zmm26
	vmovaps	128(%rdx), %zmm27
	vmovaps	192(%rdx), %zmm28
	vfmadd231ps	%zmm25, %zmm24, %zmm20
	vfmadd231ps	%zmm26, %zmm24, %zmm23
	vfmadd231ps	%zmm27, %zmm24, %zmm22
	vfmadd231ps	%zmm24, %zmm28, %zmm21
	vbroadcastss	-8196(%r13,%r8,4), %zmm24
	vfmadd231ps	%zmm25, %zmm24, %zmm19
	vfmadd231ps	%zmm26, %zmm24, %zmm18
	vfmadd231ps	%zmm27, %zmm24, %zmm17
	vfmadd231ps	%zmm24, %zmm28, %zmm16
	vbroadcastss	-6148(%r13,%r8,4), %zmm24
	vfmadd231ps	%zmm25, %zmm24, %zmm15
	vfmadd231ps	%zmm26, %zmm24, %zmm14
	vfmadd231ps	%zmm27, %zmm24, %zmm13
	vfmadd231ps	%zmm24, %zmm28, %zmm12
	vbroadcastss	-4100(%r13,%r8,4), %zmm24
	vfmadd231ps	%zmm25, %zmm24, %zmm11
	vfmadd231ps	%zmm26, %zmm24, %zmm10
	vfmadd231ps	%zmm27, %zmm24, %zmm9
	vfmadd231ps	%zmm24, %zmm28, %zmm8
	vbroadcastss	-2052(%r13,%r8,4), %zmm24
	vfmadd231ps	%zmm25, %zmm24, %zmm7
	vfmadd231ps	%zmm26, %zmm24, %zmm6
	vfmadd231ps	%zmm27, %zmm24, %zmm5
	vfmadd231ps	%zmm24, %zmm28, %zmm4
	vbroadcastss	-4(%r13,%r8,4), %zmm24
	vfmadd231ps	%zmm25, %zmm24, %zmm3
	vfmadd231ps	%zmm26, %zmm24, %zmm2
	vfmadd231ps	%zmm27, %zmm24, %zmm1
	vfmadd231ps	%zmm28, %zmm24, %zmm0
	vbroadcastss	-10240(%r13,%r8,4), %zmm24
	vmovaps	256(%rdx), %zmm25
	vmovaps	320(%rdx), %zmm26
	prefetcht1	-130816(%rdx,%rax)
	vmovaps	384(%rdx), %zmm27
	vmovaps	448(%rdx), %zmm28
	vfmadd231ps	%zmm25, %zmm24, %zmm20
	vfmadd231ps	%zmm26, %zmm24, %zmm23
	vfmadd231ps	%zmm27, %zmm24, %zmm22
	vfmadd231ps	%zmm24, %zmm28, %zmm21
	vbroadcastss	-8192(%r13,%r8,4), %zmm24
	vfmadd231ps	%zmm25, %zmm24, %zmm19
	vfmadd231ps	%zmm26, %zmm24, %zmm18
	vfmadd231ps	%zmm27, %zmm24, %zmm17
	vfmadd231ps	%zmm24, %zmm28, %zmm16
	vbroadcastss	-6144(%r13,%r8,4), %zmm24
	vfmadd231ps	%zmm25, %zmm24, %zmm15
	vfmadd231ps	%zmm26, %zmm24, %zmm14
	vfmadd231ps	%zmm27, %zmm24, %zmm13
	vfmadd231ps	%zmm24, %zmm28, %zmm12
	vbroadcastss	-4096(%r13,%r8,4), %zmm24
	vfmadd231ps	%zmm25, %zmm24, %zmm11
	vfmadd231ps	%zmm26, %zmm24, %zmm10
	vfmadd231ps	%zmm27, %zmm24, %zmm9
	vfmadd231ps	%zmm24, %zmm28, %zmm8
	vbroadcastss	-2048(%r13,%r8,4), %zmm24
	vfmadd231ps	%zmm25, %zmm24, %zmm7
	vfmadd231ps	%zmm26, %zmm24, %zmm6
	vfmadd231ps	%zmm27, %zmm24, %zmm5
	vfmadd231ps	%zmm24, %zmm28, %zmm4
	vbroadcastss	(%r13,%r8,4), %zmm24
	vfmadd231ps	%zmm25, %zmm24, %zmm3
	vfmadd231ps	%zmm26, %zmm24, %zmm2
	vfmadd231ps	%zmm27, %zmm24, %zmm1
	vfmadd231ps	%zmm28, %zmm24, %zmm0
	addq	$2, %r8
	addq	$512, %rdx
	cmpq	$512, %r8
	jl	.LBB2_8
	movq	%r15, %rax
	shlq	$13, %rax
	vmovups	(%rbx,%rbp), %zmm24
	addq	%rcx, %rax
	vaddps	%zmm24, %zmm20, %zmm20
	vmovups	%zmm20, (%rbp,%rax)
	vmovups	64(%rbx,%rbp), %zmm20
	vaddps	%zmm20, %zmm23, %zmm23
	vmovups	%zmm23, 64(%rbp,%rax)
	vmovups	128(%rbx,%rbp), %zmm23
	vaddps	%zmm23, %zmm22, %zmm22
	vmovups	%zmm22, 128(%rbp,%rax)
	vmovups	192(%rbx,%rbp), %zmm22
	vaddps	%zmm22, %zmm21, %zmm21
	vmovups	%zmm21, 192(%rbp,%rax)
	vaddps	%zmm24, %zmm19, %zmm19
	vmovups	%zmm19, 8192(%rbp,%rax)
	vaddps	%zmm20, %zmm18, %zmm18
	vmovups	%zmm18, 8256(%rbp,%rax)
	vaddps	%zmm23, %zmm17, %zmm17
	vmovups	%zmm17, 8320(%rbp,%rax)
	vaddps	%zmm22, %zmm16, %zmm16
	vmovups	%zmm16, 8384(%rbp,%rax)
	vaddps	%zmm24, %zmm15, %zmm15
	vmovups	%zmm15, 16384(%rbp,%rax)
	vaddps	%zmm20, %zmm14, %zmm14
	vmovups	%zmm14, 16448(%rbp,%rax)
	vaddps	%zmm23, %zmm13, %zmm13
	vmovups	%zmm13, 16512(%rbp,%rax)
	vaddps	%zmm22, %zmm12, %zmm12
	vmovups	%zmm12, 16576(%rbp,%rax)
	vaddps	%zmm24, %zmm11, %zmm11
	vmovups	%zmm11, 24576(%rbp,%rax)
	vaddps	%zmm20, %zmm10, %zmm10
	vmovups	%zmm10, 24640(%rbp,%rax)
	vaddps	%zmm23, %zmm9, %zmm9
	vmovups	%zmm9, 24704(%rbp,%rax)
	vaddps	%zmm22, %zmm8, %zmm8
	vmovups	%zmm8, 24768(%rbp,%rax)
	vaddps	%zmm24, %zmm7, %zmm7
	vmovups	%zmm7, 32768(%rbp,%rax)
	vaddps	%zmm20, %zmm6, %zmm6
	vmovups	%zmm6, 32832(%rbp,%rax)
	vaddps	%zmm23, %zmm5, %zmm5
	vmovups	%zmm5, 32896(%rbp,%rax)
	vaddps	%zmm22, %zmm4, %zmm4
	vmovups	%zmm4, 32960(%rbp,%rax)
	vaddps	%zmm24, %zmm3, %zmm3
	vmovups	%zmm3, 40960(%rbp,%rax)
	vaddps	%zmm20, %zmm2, %zmm2
	vmovups	%zmm2, 41024(%rbp,%rax)
	vaddps	%zmm23, %zmm1, %zmm1
	vmovups	%zmm1, 41088(%rbp,%rax)
	vaddps	%zmm22, %zmm0, %zmm0
	vmovups	%zmm0, 41152(%rbp,%rax)
	addq	$6, %r15
	addq	$12288, %r13
	cmpq	56(%rsp), %r15
	jl	.LBB2_6
	jmp	.LBB2_11
.LBB2_10:
	movq	%rdi, 24(%rsp)
	movq	%r11, %rdi
	movq	%r9, 16(%rsp)
	movq	%rcx, (%rsp)
	movq	%rsi, 8(%rsp)
	vzeroupper
	callq	safepoint
	movabsq	$-6148914691236517205, %r10
	movq	144(%rsp), %r11
	movq	24(%rsp), %rdi
	movq	8(%rsp), %rsi
	movq	(%rsp), %rcx
	movq	16(%rsp), %r9
	testb	$1, %al
	je	.LBB2_7
	jmp	.LBB2_21
	.p2align	4
.LBB2_11:
	movq	40(%rsp), %rax
	cmpq	$1597, %rax
	movl	$1596, %r15d
	cmovgeq	%rax, %r15
	movq	32(%rsp), %rax
	cmpq	$1600, %rax
	movl	$1600, %edx
	cmovlq	%rax, %rdx
	movq	%rdx, 56(%rsp)
	cmpq	%rdx, %r15
	jge	.LBB2_3
	movq	64(%rsp), %rax
	shlq	$17, %rax
	addq	%rsi, %rax
	movq	%rax, 48(%rsp)
	movq	%rdi, %r13
	.p2align	4
.LBB2_13:
	movq	%r15, %rdx
	movq	%r10, %r14
	mulxq	%r10, %rbp, %rbp
	addq	$-1588224, (%r11)
	js	.LBB2_17
.LBB2_14:
	shrq	%rbp
	andq	$-128, %rbp
	leaq	(%rbp,%rbp,2), %rax
	movq	%r15, %rdx
	subq	%rax, %rdx
	imulq	$715827883, %rdx, %rax
	shrq	$32, %rax
	shll	$6, %eax
	vxorps	%xmm13, %xmm13, %xmm13
	movq	48(%rsp), %rdx
	xorl	%r8d, %r8d
	vxorps	%xmm15, %xmm15, %xmm15
	vxorps	%xmm14, %xmm14, %xmm14
	vxorps	%xmm12, %xmm12, %xmm12
	vxorps	%xmm11, %xmm11, %xmm11
	vxorps	%xmm10, %xmm10, %xmm10
	vxorps	%xmm9, %xmm9, %xmm9
	vxorps	%xmm8, %xmm8, %xmm8
	vxorps	%xmm7, %xmm7, %xmm7
	vxorps	%xmm6, %xmm6, %xmm6
	vxorps	%xmm5, %xmm5, %xmm5
	vxorps	%xmm4, %xmm4, %xmm4
	vxorps	%xmm3, %xmm3, %xmm3
	vxorps	%xmm2, %xmm2, %xmm2
	vxorps	%xmm1, %xmm1, %xmm1
	vxorps	%xmm0, %xmm0, %xmm0
	.p2align	4
.LBB2_15:
	leaq	(%r12,%rax), %r10
	prefetcht1	-131072(%rdx,%r10)
	vbroadcastss	-6156(%r13,%r8,4), %zmm16
	vmovaps	(%rdx), %zmm17
	vmovaps	64(%rdx), %zmm18
	vmovaps	128(%rdx), %zmm19
	vmovaps	192(%rdx), %zmm20
	vfmadd231ps	%zmm17, %zmm16, %zmm13
	vfmadd231ps	%zmm18, %zmm16, %zmm15
	vfmadd231ps	%zmm19, %zmm16, %zmm14
	vfmadd231ps	%zmm16, %zmm20, %zmm12
	vbroadcastss	-4108(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm11
	vfmadd231ps	%zmm18, %zmm16, %zmm10
	vfmadd231ps	%zmm19, %zmm16, %zmm9
	vfmadd231ps	%zmm16, %zmm20, %zmm8
	vbroadcastss	-2060(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm7
	vfmadd231ps	%zmm18, %zmm16, %zmm6
	vfmadd231ps	%zmm19, %zmm16, %zmm5
	vfmadd231ps	%zmm16, %zmm20, %zmm4
	vbroadcastss	-12(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm3
	vfmadd231ps	%zmm18, %zmm16, %zmm2
	vfmadd231ps	%zmm19, %zmm16, %zmm1
	vfmadd231ps	%zmm20, %zmm16, %zmm0
	vbroadcastss	-6152(%r13,%r8,4), %zmm16
	vmovaps	256(%rdx), %zmm17
	vmovaps	320(%rdx), %zmm18
	prefetcht1	-130816(%rdx,%r10)
	vmovaps	384(%rdx), %zmm19
	vmovaps	448(%rdx), %zmm20
	vfmadd231ps	%zmm17, %zmm16, %zmm13
	vfmadd231ps	%zmm18, %zmm16, %zmm15
	vfmadd231ps	%zmm19, %zmm16, %zmm14
	vfmadd231ps	%zmm16, %zmm20, %zmm12
	vbroadcastss	-4104(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm11
	vfmadd231ps	%zmm18, %zmm16, %zmm10
	vfmadd231ps	%zmm19, %zmm16, %zmm9
	vfmadd231ps	%zmm16, %zmm20, %zmm8
	vbroadcastss	-2056(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm7
	vfmadd231ps	%zmm18, %zmm16, %zmm6
	vfmadd231ps	%zmm19, %zmm16, %zmm5
	vfmadd231ps	%zmm16, %zmm20, %zmm4
	vbroadcastss	-8(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm3
	vfmadd231ps	%zmm18, %zmm16, %zmm2
	vfmadd231ps	%zmm19, %zmm16, %zmm1
	vfmadd231ps	%zmm20, %zmm16, %zmm0
	prefetcht1	-130560(%rdx,%r10)
	vbroadcastss	-6148(%r13,%r8,4), %zmm16
	vmovaps	512(%rdx), %zmm17
	vmovaps	576(%rdx), %zmm18
	vmovaps	640(%rdx), %zmm19
	vmovaps	704(%rdx), %zmm20
	vfmadd231ps	%zmm17, %zmm16, %zmm13
	vfmadd231ps	%zmm18, %zmm16, %zmm15
	vfmadd231ps	%zmm19, %zmm16, %zmm14
	vfmadd231ps	%zmm16, %zmm20, %zmm12
	vbroadcastss	-4100(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm11
	vfmadd231ps	%zmm18, %zmm16, %zmm10
	vfmadd231ps	%zmm19, %zmm16, %zmm9
	vfmadd231ps	%zmm16, %zmm20, %zmm8
	vbroadcastss	-2052(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm7
	vfmadd231ps	%zmm18, %zmm16, %zmm6
	vfmadd231ps	%zmm19, %zmm16, %zmm5
	vfmadd231ps	%zmm16, %zmm20, %zmm4
	vbroadcastss	-4(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm3
	vfmadd231ps	%zmm18, %zmm16, %zmm2
	vfmadd231ps	%zmm19, %zmm16, %zmm1
	vfmadd231ps	%zmm20, %zmm16, %zmm0
	vbroadcastss	-6144(%r13,%r8,4), %zmm16
	vmovaps	768(%rdx), %zmm17
	vmovaps	832(%rdx), %zmm18
	prefetcht1	-130304(%rdx,%r10)
	vmovaps	896(%rdx), %zmm19
	vmovaps	960(%rdx), %zmm20
	vfmadd231ps	%zmm17, %zmm16, %zmm13
	vfmadd231ps	%zmm18, %zmm16, %zmm15
	vfmadd231ps	%zmm19, %zmm16, %zmm14
	vfmadd231ps	%zmm16, %zmm20, %zmm12
	vbroadcastss	-4096(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm11
	vfmadd231ps	%zmm18, %zmm16, %zmm10
	vfmadd231ps	%zmm19, %zmm16, %zmm9
	vfmadd231ps	%zmm16, %zmm20, %zmm8
	vbroadcastss	-2048(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm7
	vfmadd231ps	%zmm18, %zmm16, %zmm6
	vfmadd231ps	%zmm19, %zmm16, %zmm5
	vfmadd231ps	%zmm16, %zmm20, %zmm4
	vbroadcastss	(%r13,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm3
	vfmadd231ps	%zmm18, %zmm16, %zmm2
	vfmadd231ps	%zmm19, %zmm16, %zmm1
	vfmadd231ps	%zmm20, %zmm16, %zmm0
	addq	$4, %r8
	addq	$1024, %rdx
	cmpq	$512, %r8
	jl	.LBB2_15
	movq	%r15, %rax
	shlq	$13, %rax
	movq	64(%rsp), %rdx
	shlq	$8, %rdx
	vmovups	(%rbx,%rdx), %zmm16
	addq	%rcx, %rax
	vaddps	%zmm16, %zmm13, %zmm13
	vmovups	%zmm13, (%rdx,%rax)
	vmovups	64(%rbx,%rdx), %zmm13
	vaddps	%zmm13, %zmm15, %zmm15
	vmovups	%zmm15, 64(%rdx,%rax)
	vmovups	128(%rbx,%rdx), %zmm15
	vaddps	%zmm15, %zmm14, %zmm14
	vmovups	%zmm14, 128(%rdx,%rax)
	vmovups	192(%rbx,%rdx), %zmm14
	vaddps	%zmm14, %zmm12, %zmm12
	vmovups	%zmm12, 192(%rdx,%rax)
	vaddps	%zmm16, %zmm11, %zmm11
	vmovups	%zmm11, 8192(%rdx,%rax)
	vaddps	%zmm13, %zmm10, %zmm10
	vmovups	%zmm10, 8256(%rdx,%rax)
	vaddps	%zmm15, %zmm9, %zmm9
	vmovups	%zmm9, 8320(%rdx,%rax)
	vaddps	%zmm14, %zmm8, %zmm8
	vmovups	%zmm8, 8384(%rdx,%rax)
	vaddps	%zmm16, %zmm7, %zmm7
	vmovups	%zmm7, 16384(%rdx,%rax)
	vaddps	%zmm13, %zmm6, %zmm6
	vmovups	%zmm6, 16448(%rdx,%rax)
	vaddps	%zmm15, %zmm5, %zmm5
	vmovups	%zmm5, 16512(%rdx,%rax)
	vaddps	%zmm14, %zmm4, %zmm4
	vmovups	%zmm4, 16576(%rdx,%rax)
	vaddps	%zmm16, %zmm3, %zmm3
	vmovups	%zmm3, 24576(%rdx,%rax)
	vaddps	%zmm13, %zmm2, %zmm2
	vmovups	%zmm2, 24640(%rdx,%rax)
	vaddps	%zmm15, %zmm1, %zmm1
	vmovups	%zmm1, 24704(%rdx,%rax)
	vaddps	%zmm14, %zmm0, %zmm0
	vmovups	%zmm0, 24768(%rdx,%rax)
	addq	$4, %r15
	addq	$8192, %r13
	cmpq	56(%rsp), %r15
	movq	%r14, %r10
	jl	.LBB2_13
	jmp	.LBB2_3
.LBB2_17:
	movq	%rdi, 24(%rsp)
	movq	%r11, %rdi
	movq	%r9, 16(%rsp)
	movq	%rcx, (%rsp)
	movq	%rsi, 8(%rsp)
	vzeroupper
	callq	safepoint
	movq	144(%rsp), %r11
	movq	24(%rsp), %rdi
	movq	8(%rsp), %rsi
	movq	(%rsp), %rcx
	movq	16(%rsp), %r9
	testb	$1, %al
	je	.LBB2_14
.LBB2_21:
	movb	$1, %al
	jmp	.LBB2_20
.LBB2_19:
	xorl	%eax, %eax
.LBB2_20:
	addq	$88, %rsp
	popq	%rbx
	popq	%r12
	popq	%r13
	popq	%r14
	popq	%r15
	popq	%rbp
	vzeroupper
	retq
.Lfunc_end2:
	.size	kernel.k22, .Lfunc_end2-kernel.k22

	.section	.rodata.cst4,"aM",@progbits,4
	.p2align	2, 0x0
.LCPI3_0:
	.long	0x41f00000
.LCPI3_1:
	.long	0xc2d20000
.LCPI3_2:
	.long	0x3fb8aa3b
.LCPI3_3:
	.long	0xcb400000
.LCPI3_4:
	.long	0xbf317218
.LCPI3_5:
	.long	0x3102e308
.LCPI3_6:
	.long	0xbc091cc1
.LCPI3_7:
	.long	0x3ab529f8
.LCPI3_8:
	.long	0x3d2aac55
.LCPI3_9:
	.long	0xbe2aaa49
.LCPI3_10:
	.long	0x3efffffe
.LCPI3_11:
	.long	0x3f800000
.LCPI3_12:
	.long	528482304
.LCPI3_13:
	.long	0x7fffffff
.LCPI3_14:
	.long	0x41140000
.LCPI3_15:
	.long	0x4038aa3b
.LCPI3_16:
	.long	0xbeb17218
.LCPI3_17:
	.long	0x3082e308
.LCPI3_18:
	.long	0x3d36a1b7
.LCPI3_19:
	.long	0x3c4f0aa9
.LCPI3_20:
	.long	0x3e088981
.LCPI3_21:
	.long	0x3eaaaa78
.LCPI3_22:
	.long	0x3f2aaaaa
.LCPI3_23:
	.long	0xbf000000
.LCPI3_24:
	.long	2147483648
	.text
	.p2align	4
	.type	kernel.k78,@function
kernel.k78:
	pushq	%rbp
	pushq	%r15
	pushq	%r14
	pushq	%r13
	pushq	%r12
	pushq	%rbx
	subq	$1768, %rsp
	movq	%r9, 16(%rsp)
	movq	%rcx, 8(%rsp)
	movq	%rdx, %r14
	movq	%rsi, 56(%rsp)
	movq	1840(%rsp), %r13
	leaq	10244(%rdi), %rax
	movq	%rax, 40(%rsp)
	addq	$30732, %rdi
	movq	%rdi, 48(%rsp)
	xorl	%r15d, %r15d
	movq	%r13, %r10
	shlq	$15, %r10
	addq	%r8, %r10
	movq	%r13, %r11
	shlq	$17, %r11
	movq	%rdx, 80(%rsp)
	movq	%r10, (%rsp)
	movq	%r11, 72(%rsp)
	.p2align	4
.LBB3_1:
	movq	1848(%rsp), %rax
	addq	$-6388736, (%rax)
	js	.LBB3_2
.LBB3_4:
	movl	$31, %ebx
	subq	%r15, %rbx
	testb	$1, %r13b
	movq	%r15, 64(%rsp)
	cmoveq	%r15, %rbx
	movq	%rbx, %rax
	shlq	$17, %rax
	addq	56(%rsp), %rax
	movq	%rax, 24(%rsp)
	shlq	$6, %rbx
	movq	40(%rsp), %r15
	xorl	%r12d, %r12d
	xorl	%esi, %esi
	movq	%rbx, 32(%rsp)
	.p2align	4
.LBB3_5:
	movq	%rsi, %rax
	shlq	$13, %rax
	addq	%r14, %rax
	addq	%rbx, %rax
	leaq	(%rax,%r11), %rdi
	prefetcht0	6144(%r11,%rax)
	prefetcht0	14336(%r11,%rax)
	prefetcht0	22528(%r11,%rax)
	prefetcht0	30720(%r11,%rax)
	prefetcht0	38912(%r11,%rax)
	prefetcht0	47104(%r11,%rax)
	prefetcht0	(%r11,%rax)
	prefetcht0	8192(%r11,%rax)
	prefetcht0	16384(%r11,%rax)
	prefetcht0	24576(%r11,%rax)
	prefetcht0	32768(%r11,%rax)
	prefetcht0	40960(%r11,%rax)
	prefetcht0	4096(%r11,%rax)
	prefetcht0	12288(%r11,%rax)
	prefetcht0	20480(%r11,%rax)
	prefetcht0	28672(%r11,%rax)
	prefetcht0	36864(%r11,%rax)
	prefetcht0	45056(%r11,%rax)
	prefetcht0	2048(%r11,%rax)
	prefetcht0	10240(%r11,%rax)
	prefetcht0	18432(%r11,%rax)
	prefetcht0	26624(%r11,%rax)
	prefetcht0	34816(%r11,%rax)
	prefetcht0	43008(%r11,%rax)
	vxorps	%xmm26, %xmm26, %xmm26
	movq	24(%rsp), %rax
	movl	$0, %ecx
	vxorps	%xmm27, %xmm27, %xmm27
	vxorps	%xmm28, %xmm28, %xmm28
	vxorps	%xmm0, %xmm0, %xmm0
	vxorps	%xmm22, %xmm22, %xmm22
	vxorps	%xmm23, %xmm23, %xmm23
	vxorps	%xmm24, %xmm24, %xmm24
	vxorps	%xmm25, %xmm25, %xmm25
	vxorps	%xmm18, %xmm18, %xmm18
	vxorps	%xmm19, %xmm19, %xmm19
	vxorps	%xmm20, %xmm20, %xmm20
	vxorps	%xmm21, %xmm21, %xmm21
	vxorps	%xmm14, %xmm14, %xmm14
	vxorps	%xmm15, %xmm15, %xmm15
	vxorps	%xmm16, %xmm16, %xmm16
	vxorps	%xmm17, %xmm17, %xmm17
	vxorps	%xmm10, %xmm10, %xmm10
	vxorps	%xmm11, %xmm11, %xmm11
	vxorps	%xmm12, %xmm12, %xmm12
	vxorps	%xmm13, %xmm13, %xmm13
	vxorps	%xmm6, %xmm6, %xmm6
	vxorps	%xmm7, %xmm7, %xmm7
	vxorps	%xmm8, %xmm8, %xmm8
	vxorps	%xmm9, %xmm9, %xmm9
	.p2align	4
.LBB3_6:
	movl	%r13d, %edx
	notb	%dl
	movzbl	%dl, %edx
	andl	$1, %edx
	shll	$18, %edx
	addq	%r12, %rdx
	prefetcht1	-131072(%rax,%rdx)
	vbroadcastss	-10244(%r15,%rcx,4), %zmm1
	vmovaps	(%rax), %zmm2
	vmovaps	64(%rax), %zmm3
	vmovaps	128(%rax), %zmm4
	vmovaps	192(%rax), %zmm5
	vfmadd231ps	%zmm2, %zmm1, %zmm26
	vfmadd231ps	%zmm3, %zmm1, %zmm27
	vfmadd231ps	%zmm4, %zmm1, %zmm28
	vfmadd231ps	%zmm1, %zmm5, %zmm0
	vbroadcastss	-8196(%r15,%rcx,4), %zmm1
	vfmadd231ps	%zmm2, %zmm1, %zmm22
	vfmadd231ps	%zmm3, %zmm1, %zmm23
	vfmadd231ps	%zmm4, %zmm1, %zmm24
	vfmadd231ps	%zmm1, %zmm5, %zmm25
	vbroadcastss	-6148(%r15,%rcx,4), %zmm1
	vfmadd231ps	%zmm2, %zmm1, %zmm18
	vfmadd231ps	%zmm3, %zmm1, %zmm19
	vfmadd231ps	%zmm4, %zmm1, %zmm20
	vfmadd231ps	%zmm1, %zmm5, %zmm21
	vbroadcastss	-4100(%r15,%rcx,4), %zmm1
	vfmadd231ps	%zmm2, %zmm1, %zmm14
	vfmadd231ps	%zmm3, %zmm1, %zmm15
	vfmadd231ps	%zmm4, %zmm1, %zmm16
	vfmadd231ps	%zmm1, %zmm5, %zmm17
	vbroadcastss	-2052(%r15,%rcx,4), %zmm1
	vfmadd231ps	%zmm2, %zmm1, %zmm10
	vfmadd231ps	%zmm3, %zmm1, %zmm11
	vfmadd231ps	%zmm4, %zmm1, %zmm12
	vfmadd231ps	%zmm1, %zmm5, %zmm13
	vbroadcastss	-4(%r15,%rcx,4), %zmm1
	prefetcht1	-131008(%rax,%rdx)
	vfmadd231ps	%zmm2, %zmm1, %zmm6
	vfmadd231ps	%zmm3, %zmm1, %zmm7
	vfmadd231ps	%zmm4, %zmm1, %zmm8
	vfmadd231ps	%zmm5, %zmm1, %zmm9
	prefetcht1	-130816(%rax,%rdx)
	vbroadcastss	-10240(%r15,%rcx,4), %zmm1
	vmovaps	256(%rax), %zmm2
	vmovaps	320(%rax), %zmm3
	prefetcht1	-130752(%rax,%rdx)
	vmovaps	384(%rax), %zmm4
	vmovaps	448(%rax), %zmm5
	vfmadd231ps	%zmm2, %zmm1, %zmm26
	vfmadd231ps	%zmm3, %zmm1, %zmm27
	vfmadd231ps	%zmm4, %zmm1, %zmm28
	vfmadd231ps	%zmm1, %zmm5, %zmm0
	vbroadcastss	-8192(%r15,%rcx,4), %zmm1
	vfmadd231ps	%zmm2, %zmm1, %zmm22
	vfmadd231ps	%zmm3, %zmm1, %zmm23
	vfmadd231ps	%zmm4, %zmm1, %zmm24
	vfmadd231ps	%zmm1, %zmm5, %zmm25
	vbroadcastss	-6144(%r15,%rcx,4), %zmm1
	vfmadd231ps	%zmm2, %zmm1, %zmm18
	vfmadd231ps	%zmm3, %zmm1, %zmm19
	vfmadd231ps	%zmm4, %zmm1, %zmm20
	vfmadd231ps	%zmm1, %zmm5, %zmm21
	vbroadcastss	-4096(%r15,%rcx,4), %zmm1
	vfmadd231ps	%zmm2, %zmm1, %zmm14
	vfmadd231ps	%zmm3, %zmm1, %zmm15
	vfmadd231ps	%zmm4, %zmm1, %zmm16
	vfmadd231ps	%zmm1, %zmm5, %zmm17
	vbroadcastss	-2048(%r15,%rcx,4), %zmm1
	vfmadd231ps	%zmm2, %zmm1, %zmm10
	vfmadd231ps	%zmm3, %zmm1, %zmm11
	vfmadd231ps	%zmm4, %zmm1, %zmm12
	vfmadd231ps	%zmm1, %zmm5, %zmm13
	vbroadcastss	(%r15,%rcx,4), %zmm1
	vfmadd231ps	%zmm2, %zmm1, %zmm6
	vfmadd231ps	%zmm3, %zmm1, %zmm7
	vfmadd231ps	%zmm4, %zmm1, %zmm8
	vfmadd231ps	%zmm5, %zmm1, %zmm9
	addq	$2, %rcx
	addq	$512, %rax
	cmpq	$512, %rcx
	jl	.LBB3_6
	movq	%rsi, %r14
	shlq	$11, %r14
	leaq	(%r10,%r14), %rbp
	vaddps	2048(%rdi), %zmm0, %zmm0
	movq	%rsi, 88(%rsp)
	vmovups	%zmm6, 1696(%rsp)
	vmovups	%zmm7, 1568(%rsp)
	vmovups	%zmm8, 1632(%rsp)
	vmovups	%zmm9, 1504(%rsp)
	vmovups	%zmm10, 1440(%rsp)
	vmovups	%zmm11, 1376(%rsp)
	vmovups	%zmm12, 1312(%rsp)
	vmovups	%zmm13, 1248(%rsp)
	vmovups	%zmm14, 1184(%rsp)
	vmovups	%zmm15, 1120(%rsp)
	vmovups	%zmm16, 1056(%rsp)
	vmovups	%zmm17, 992(%rsp)
	vmovups	%zmm18, 928(%rsp)
	vmovups	%zmm19, 864(%rsp)
	vmovups	%zmm20, 800(%rsp)
	vmovups	%zmm21, 736(%rsp)
	vmovups	%zmm22, 672(%rsp)
	vmovups	%zmm23, 608(%rsp)
	vmovups	%zmm24, 544(%rsp)
	vmovups	%zmm25, 480(%rsp)
	vmovups	%zmm26, 416(%rsp)
	vmovups	%zmm27, 352(%rsp)
	vmovups	%zmm28, 96(%rsp)
	movq	%rdi, %r13
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 160(%rsp)
	vmovups	96(%rsp), %zmm0
	vaddps	4096(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	movq	8(%rsp), %rax
	addq	%r14, %rax
	movq	%rax, 224(%rsp)
	movq	32(%rsp), %rbx
	vmulps	(%rbx,%rax), %zmm0, %zmm0
	vmovups	%zmm0, 96(%rsp)
	vmovups	352(%rsp), %zmm0
	vaddps	(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 352(%rsp)
	vmovups	416(%rsp), %zmm0
	vaddps	6144(%r13), %zmm0, %zmm0
	callq	function.tanh.float32.x16
	vmulps	352(%rsp), %zmm0, %zmm0
	vaddps	96(%rsp), %zmm0, %zmm0
	vmovups	%zmm0, 416(%rsp)
	callq	function.tanh.float32.x16
	vmulps	160(%rsp), %zmm0, %zmm0
	vmovups	%zmm0, (%rbx,%rbp)
	movq	%rbp, 288(%rsp)
	movq	16(%rsp), %rax
	addq	%r14, %rax
	movq	%rax, 96(%rsp)
	vmovups	%zmm0, (%rbx,%rax)
	addq	1824(%rsp), %r14
	movq	%r14, 160(%rsp)
	vmovups	416(%rsp), %zmm0
	vmovups	%zmm0, (%rbx,%r14)
	vmovups	480(%rsp), %zmm0
	vaddps	10240(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 480(%rsp)
	vmovups	544(%rsp), %zmm0
	vaddps	12288(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	movq	224(%rsp), %r14
	vmulps	2048(%rbx,%r14), %zmm0, %zmm0
	vmovups	%zmm0, 544(%rsp)
	vmovups	608(%rsp), %zmm0
	vaddps	8192(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 608(%rsp)
	vmovups	672(%rsp), %zmm0
	vaddps	14336(%r13), %zmm0, %zmm0
	callq	function.tanh.float32.x16
	vmulps	608(%rsp), %zmm0, %zmm0
	vaddps	544(%rsp), %zmm0, %zmm0
	vmovups	%zmm0, 672(%rsp)
	callq	function.tanh.float32.x16
	vmulps	480(%rsp), %zmm0, %zmm0
	vmovups	%zmm0, 2048(%rbx,%rbp)
	movq	96(%rsp), %rbp
	vmovups	%zmm0, 2048(%rbx,%rbp)
	movq	160(%rsp), %rax
	vmovups	672(%rsp), %zmm0
	vmovups	%zmm0, 2048(%rbx,%rax)
	vmovups	736(%rsp), %zmm0
	vaddps	18432(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 736(%rsp)
	vmovups	800(%rsp), %zmm0
	vaddps	20480(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmulps	4096(%rbx,%r14), %zmm0, %zmm0
	vmovups	%zmm0, 800(%rsp)
	vmovups	864(%rsp), %zmm0
	vaddps	16384(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 864(%rsp)
	vmovups	928(%rsp), %zmm0
	vaddps	22528(%r13), %zmm0, %zmm0
	callq	function.tanh.float32.x16
	vmulps	864(%rsp), %zmm0, %zmm0
	vaddps	800(%rsp), %zmm0, %zmm0
	vmovups	%zmm0, 928(%rsp)
	callq	function.tanh.float32.x16
	vmulps	736(%rsp), %zmm0, %zmm0
	movq	288(%rsp), %rax
	vmovups	%zmm0, 4096(%rbx,%rax)
	vmovups	%zmm0, 4096(%rbx,%rbp)
	movq	160(%rsp), %rax
	vmovups	928(%rsp), %zmm0
	vmovups	%zmm0, 4096(%rbx,%rax)
	vmovups	992(%rsp), %zmm0
	vaddps	26624(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 992(%rsp)
	vmovups	1056(%rsp), %zmm0
	vaddps	28672(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmulps	6144(%rbx,%r14), %zmm0, %zmm0
	vmovups	%zmm0, 1056(%rsp)
	vmovups	1120(%rsp), %zmm0
	vaddps	24576(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 1120(%rsp)
	vmovups	1184(%rsp), %zmm0
	vaddps	30720(%r13), %zmm0, %zmm0
	callq	function.tanh.float32.x16
	vmulps	1120(%rsp), %zmm0, %zmm0
	vaddps	1056(%rsp), %zmm0, %zmm0
	vmovups	%zmm0, 1184(%rsp)
	callq	function.tanh.float32.x16
	vmulps	992(%rsp), %zmm0, %zmm0
	movq	288(%rsp), %rbp
	vmovups	%zmm0, 6144(%rbx,%rbp)
	movq	96(%rsp), %rax
	vmovups	%zmm0, 6144(%rbx,%rax)
	movq	160(%rsp), %rax
	vmovups	1184(%rsp), %zmm0
	vmovups	%zmm0, 6144(%rbx,%rax)
	vmovups	1248(%rsp), %zmm0
	vaddps	34816(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 1248(%rsp)
	vmovups	1312(%rsp), %zmm0
	vaddps	36864(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmulps	8192(%rbx,%r14), %zmm0, %zmm0
	vmovups	%zmm0, 1312(%rsp)
	vmovups	1376(%rsp), %zmm0
	vaddps	32768(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 1376(%rsp)
	vmovups	1440(%rsp), %zmm0
	vaddps	38912(%r13), %zmm0, %zmm0
	callq	function.tanh.float32.x16
	vmulps	1376(%rsp), %zmm0, %zmm0
	vaddps	1312(%rsp), %zmm0, %zmm0
	vmovups	%zmm0, 1440(%rsp)
	callq	function.tanh.float32.x16
	vmulps	1248(%rsp), %zmm0, %zmm0
	vmovups	%zmm0, 8192(%rbx,%rbp)
	movq	96(%rsp), %r14
	vmovups	%zmm0, 8192(%rbx,%r14)
	movq	160(%rsp), %rbp
	vmovups	1440(%rsp), %zmm0
	vmovups	%zmm0, 8192(%rbx,%rbp)
	vmovups	1504(%rsp), %zmm0
	vaddps	43008(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 1504(%rsp)
	vmovups	1632(%rsp), %zmm0
	vaddps	45056(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	movq	224(%rsp), %rax
	vmulps	10240(%rbx,%rax), %zmm0, %zmm0
	vmovups	%zmm0, 224(%rsp)
	vmovups	1568(%rsp), %zmm0
	vaddps	40960(%r13), %zmm0, %zmm0
	callq	function.sigmoid.float32.x16
	vmovups	%zmm0, 1568(%rsp)
	vmovups	1696(%rsp), %zmm0
	vaddps	47104(%r13), %zmm0, %zmm0
	callq	function.tanh.float32.x16
	vmulps	1568(%rsp), %zmm0, %zmm0
	vaddps	224(%rsp), %zmm0, %zmm0
	vmovups	%zmm0, 224(%rsp)
	callq	function.tanh.float32.x16
	movq	88(%rsp), %rsi
	movq	(%rsp), %r10
	vmulps	1504(%rsp), %zmm0, %zmm0
	movq	288(%rsp), %rax
	vmovups	%zmm0, 10240(%rbx,%rax)
	vmovups	%zmm0, 10240(%rbx,%r14)
	vmovups	224(%rsp), %zmm0
	vmovups	%zmm0, 10240(%rbx,%rbp)
	movq	1840(%rsp), %r13
	addq	$6, %rsi
	subq	$-128, %r12
	addq	$12288, %r15
	cmpq	$12, %rsi
	movq	80(%rsp), %r14
	movq	72(%rsp), %r11
	jl	.LBB3_5
	movl	$12, %edx
	movq	48(%rsp), %rax
	movabsq	$-6148914691236517205, %r12
	.p2align	4
.LBB3_9:
	mulxq	%r12, %rsi, %rsi
	shlq	$5, %rsi
	andq	$-128, %rsi
	movq	%rdx, %rdi
	shlq	$13, %rdi
	addq	%r14, %rdi
	addq	%rbx, %rdi
	leaq	(%rdi,%r11), %rcx
	prefetcht0	6144(%r11,%rdi)
	prefetcht0	14336(%r11,%rdi)
	prefetcht0	22528(%r11,%rdi)
	prefetcht0	30720(%r11,%rdi)
	prefetcht0	(%r11,%rdi)
	prefetcht0	8192(%r11,%rdi)
	prefetcht0	16384(%r11,%rdi)
	prefetcht0	24576(%r11,%rdi)
	prefetcht0	4096(%r11,%rdi)
	prefetcht0	12288(%r11,%rdi)
	prefetcht0	20480(%r11,%rdi)
	prefetcht0	28672(%r11,%rdi)
	prefetcht0	2048(%r11,%rdi)
	prefetcht0	10240(%r11,%rdi)
	prefetcht0	18432(%r11,%rdi)
	prefetcht0	26624(%r11,%rdi)
	vxorps	%xmm13, %xmm13, %xmm13
	movq	24(%rsp), %rdi
	movl	$0, %r8d
	vxorps	%xmm12, %xmm12, %xmm12
	vxorps	%xmm14, %xmm14, %xmm14
	vxorps	%xmm15, %xmm15, %xmm15
	vxorps	%xmm10, %xmm10, %xmm10
	vxorps	%xmm9, %xmm9, %xmm9
	vxorps	%xmm11, %xmm11, %xmm11
	vxorps	%xmm8, %xmm8, %xmm8
	vxorps	%xmm5, %xmm5, %xmm5
	vxorps	%xmm6, %xmm6, %xmm6
	vxorps	%xmm7, %xmm7, %xmm7
	vxorps	%xmm2, %xmm2, %xmm2
	vxorps	%xmm3, %xmm3, %xmm3
	vxorps	%xmm1, %xmm1, %xmm1
	vxorps	%xmm4, %xmm4, %xmm4
	vxorps	%xmm0, %xmm0, %xmm0
	.p2align	4
.LBB3_10:
	movl	%r13d, %r9d
	notb	%r9b
	movzbl	%r9b, %r9d
	andl	$1, %r9d
	shll	$18, %r9d
	addq	%rsi, %r9
	prefetcht1	-131072(%rdi,%r9)
	vbroadcastss	-6156(%rax,%r8,4), %zmm16
	vmovaps	(%rdi), %zmm17
	vmovaps	64(%rdi), %zmm18
	prefetcht1	-131008(%rdi,%r9)
	vmovaps	128(%rdi), %zmm19
	vmovaps	192(%rdi), %zmm20
	vfmadd231ps	%zmm17, %zmm16, %zmm13
	vfmadd231ps	%zmm18, %zmm16, %zmm12
	vfmadd231ps	%zmm19, %zmm16, %zmm14
	vfmadd231ps	%zmm16, %zmm20, %zmm15
	vbroadcastss	-4108(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm10
	vfmadd231ps	%zmm18, %zmm16, %zmm9
	vfmadd231ps	%zmm19, %zmm16, %zmm11
	vfmadd231ps	%zmm16, %zmm20, %zmm8
	vbroadcastss	-2060(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm5
	vfmadd231ps	%zmm18, %zmm16, %zmm6
	vfmadd231ps	%zmm19, %zmm16, %zmm7
	vfmadd231ps	%zmm16, %zmm20, %zmm2
	vbroadcastss	-12(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm3
	vfmadd231ps	%zmm18, %zmm16, %zmm1
	vfmadd231ps	%zmm19, %zmm16, %zmm4
	vfmadd231ps	%zmm20, %zmm16, %zmm0
	prefetcht1	-130816(%rdi,%r9)
	vbroadcastss	-6152(%rax,%r8,4), %zmm16
	vmovaps	256(%rdi), %zmm17
	vmovaps	320(%rdi), %zmm18
	vmovaps	384(%rdi), %zmm19
	prefetcht1	-130752(%rdi,%r9)
	vmovaps	448(%rdi), %zmm20
	vfmadd231ps	%zmm17, %zmm16, %zmm13
	vfmadd231ps	%zmm18, %zmm16, %zmm12
	vfmadd231ps	%zmm19, %zmm16, %zmm14
	vfmadd231ps	%zmm16, %zmm20, %zmm15
	vbroadcastss	-4104(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm10
	vfmadd231ps	%zmm18, %zmm16, %zmm9
	vfmadd231ps	%zmm19, %zmm16, %zmm11
	vfmadd231ps	%zmm16, %zmm20, %zmm8
	vbroadcastss	-2056(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm5
	vfmadd231ps	%zmm18, %zmm16, %zmm6
	vfmadd231ps	%zmm19, %zmm16, %zmm7
	vfmadd231ps	%zmm16, %zmm20, %zmm2
	vbroadcastss	-8(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm3
	vfmadd231ps	%zmm18, %zmm16, %zmm1
	vfmadd231ps	%zmm19, %zmm16, %zmm4
	vfmadd231ps	%zmm20, %zmm16, %zmm0
	prefetcht1	-130560(%rdi,%r9)
	vbroadcastss	-6148(%rax,%r8,4), %zmm16
	vmovaps	512(%rdi), %zmm17
	vmovaps	576(%rdi), %zmm18
	vmovaps	640(%rdi), %zmm19
	vmovaps	704(%rdi), %zmm20
	vfmadd231ps	%zmm17, %zmm16, %zmm13
	vfmadd231ps	%zmm18, %zmm16, %zmm12
	vfmadd231ps	%zmm19, %zmm16, %zmm14
	vfmadd231ps	%zmm16, %zmm20, %zmm15
	vbroadcastss	-4100(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm10
	vfmadd231ps	%zmm18, %zmm16, %zmm9
	vfmadd231ps	%zmm19, %zmm16, %zmm11
	vfmadd231ps	%zmm16, %zmm20, %zmm8
	vbroadcastss	-2052(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm5
	vfmadd231ps	%zmm18, %zmm16, %zmm6
	vfmadd231ps	%zmm19, %zmm16, %zmm7
	vfmadd231ps	%zmm16, %zmm20, %zmm2
	vbroadcastss	-4(%rax,%r8,4), %zmm16
	prefetcht1	-130496(%rdi,%r9)
	vfmadd231ps	%zmm17, %zmm16, %zmm3
	vfmadd231ps	%zmm18, %zmm16, %zmm1
	vfmadd231ps	%zmm19, %zmm16, %zmm4
	vfmadd231ps	%zmm20, %zmm16, %zmm0
	prefetcht1	-130304(%rdi,%r9)
	vbroadcastss	-6144(%rax,%r8,4), %zmm16
	vmovaps	768(%rdi), %zmm17
	vmovaps	832(%rdi), %zmm18
	prefetcht1	-130240(%rdi,%r9)
	vmovaps	896(%rdi), %zmm19
	vmovaps	960(%rdi), %zmm20
	vfmadd231ps	%zmm17, %zmm16, %zmm13
	vfmadd231ps	%zmm18, %zmm16, %zmm12
	vfmadd231ps	%zmm19, %zmm16, %zmm14
	vfmadd231ps	%zmm16, %zmm20, %zmm15
	vbroadcastss	-4096(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm10
	vfmadd231ps	%zmm18, %zmm16, %zmm9
	vfmadd231ps	%zmm19, %zmm16, %zmm11
	vfmadd231ps	%zmm16, %zmm20, %zmm8
	vbroadcastss	-2048(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm5
	vfmadd231ps	%zmm18, %zmm16, %zmm6
	vfmadd231ps	%zmm19, %zmm16, %zmm7
	vfmadd231ps	%zmm16, %zmm20, %zmm2
	vbroadcastss	(%rax,%r8,4), %zmm16
	vfmadd231ps	%zmm17, %zmm16, %zmm3
	vfmadd231ps	%zmm18, %zmm16, %zmm1
	vfmadd231ps	%zmm19, %zmm16, %zmm4
	vfmadd231ps	%zmm20, %zmm16, %zmm0
	addq	$4, %r8
	addq	$1024, %rdi
	cmpq	$512, %r8
	jl	.LBB3_10
	vaddps	2048(%rcx), %zmm15, %zmm15
	vbroadcastss	.LCPI3_0(%rip), %zmm27
	vminps	%zmm15, %zmm27, %zmm15
	vbroadcastss	.LCPI3_1(%rip), %zmm20
	vmaxps	%zmm15, %zmm20, %zmm17
	vbroadcastss	.LCPI3_2(%rip), %zmm18
	vbroadcastss	.LCPI3_3(%rip), %zmm16
	vfmsub213ps	%zmm16, %zmm17, %zmm18
	vmovups	%zmm18, 160(%rsp)
	vaddps	%zmm16, %zmm18, %zmm15
	vmovaps	%zmm16, %zmm24
	vbroadcastss	.LCPI3_4(%rip), %zmm18
	vfmadd231ps	%zmm18, %zmm15, %zmm17
	vbroadcastss	.LCPI3_5(%rip), %zmm18
	vfmadd231ps	%zmm15, %zmm18, %zmm17
	vbroadcastss	.LCPI3_7(%rip), %zmm15
	vbroadcastss	.LCPI3_6(%rip), %zmm18
	vfmadd213ps	%zmm18, %zmm17, %zmm15
	vbroadcastss	.LCPI3_8(%rip), %zmm18
	vfmadd213ps	%zmm18, %zmm17, %zmm15
	vbroadcastss	.LCPI3_9(%rip), %zmm18
	vfmadd213ps	%zmm18, %zmm17, %zmm15
	vbroadcastss	.LCPI3_10(%rip), %zmm22
	vfmadd213ps	%zmm22, %zmm17, %zmm15
	vbroadcastss	.LCPI3_11(%rip), %zmm23
	vfmsub213ps	%zmm23, %zmm17, %zmm15
	vfmadd213ps	%zmm23, %zmm17, %zmm15
	vaddps	4096(%rcx), %zmm14, %zmm14
	vminps	%zmm14, %zmm27, %zmm14
	vmaxps	%zmm14, %zmm20, %zmm14
	vaddps	6144(%rcx), %zmm13, %zmm13
	vmovups	%zmm13, 96(%rsp)
	vbroadcastss	.LCPI3_13(%rip), %zmm28
	vandps	%zmm28, %zmm13, %zmm13
	vbroadcastss	.LCPI3_14(%rip), %zmm25
	vminps	%zmm13, %zmm25, %zmm13
	vbroadcastss	.LCPI3_15(%rip), %zmm18
	vfmsub213ps	%zmm16, %zmm13, %zmm18
	vaddps	%zmm16, %zmm18, %zmm19
	vbroadcastss	.LCPI3_16(%rip), %zmm29
	vfmadd231ps	%zmm29, %zmm19, %zmm13
	vbroadcastss	.LCPI3_17(%rip), %zmm30
	vfmadd231ps	%zmm19, %zmm30, %zmm13
	vmulps	%zmm13, %zmm13, %zmm19
	vbroadcastss	.LCPI3_19(%rip), %zmm20
	vbroadcastss	.LCPI3_18(%rip), %zmm31
	vfmadd213ps	%zmm31, %zmm13, %zmm20
	vbroadcastss	.LCPI3_20(%rip), %zmm21
	vfmadd213ps	%zmm21, %zmm13, %zmm20
	vbroadcastss	.LCPI3_21(%rip), %zmm21
	vfmadd213ps	%zmm21, %zmm13, %zmm20
	vbroadcastss	.LCPI3_22(%rip), %zmm21
	vfmadd213ps	%zmm21, %zmm13, %zmm20
	vmovaps	%zmm23, %zmm21
	vfmadd213ps	%zmm23, %zmm13, %zmm20
	vfmadd213ps	%zmm13, %zmm19, %zmm20
	vbroadcastss	.LCPI3_2(%rip), %zmm16
	vmovaps	%zmm16, %zmm13
	vmovaps	%zmm24, %zmm31
	vfmsub213ps	%zmm24, %zmm14, %zmm13
	vaddps	%zmm24, %zmm13, %zmm19
	vbroadcastss	.LCPI3_4(%rip), %zmm17
	vfmadd231ps	%zmm17, %zmm19, %zmm14
	vbroadcastss	.LCPI3_5(%rip), %zmm25
	vfmadd231ps	%zmm19, %zmm25, %zmm14
	vbroadcastss	.LCPI3_7(%rip), %zmm26
	vmovaps	%zmm26, %zmm19
	vbroadcastss	.LCPI3_6(%rip), %zmm23
	vfmadd213ps	%zmm23, %zmm14, %zmm19
	vbroadcastss	.LCPI3_8(%rip), %zmm24
	vfmadd213ps	%zmm24, %zmm14, %zmm19
	vbroadcastss	.LCPI3_9(%rip), %zmm29
	vfmadd213ps	%zmm29, %zmm14, %zmm19
	vmovaps	%zmm22, %zmm30
	vfmadd213ps	%zmm22, %zmm14, %zmm19
	vfmsub213ps	%zmm21, %zmm14, %zmm19
	vfmadd213ps	%zmm21, %zmm14, %zmm19
	vpslld	$23, %zmm13, %zmm13
	vpbroadcastd	.LCPI3_12(%rip), %zmm28
	vpsubd	%zmm13, %zmm28, %zmm14
	vaddps	(%rcx), %zmm12, %zmm12
	vbroadcastss	.LCPI3_12(%rip), %zmm22
	vfmadd213ps	%zmm22, %zmm19, %zmm14
	vminps	%zmm12, %zmm27, %zmm12
	vbroadcastss	.LCPI3_1(%rip), %zmm13
	vmaxps	%zmm12, %zmm13, %zmm12
	vpslld	$23, %zmm18, %zmm13
	vpbroadcastd	.LCPI3_11(%rip), %zmm27
	vpaddd	%zmm27, %zmm13, %zmm13
	vbroadcastss	.LCPI3_23(%rip), %zmm18
	vfnmadd213ps	%zmm18, %zmm13, %zmm18
	vfmadd231ps	%zmm20, %zmm13, %zmm18
	vfmsub213ps	%zmm31, %zmm12, %zmm16
	vaddps	%zmm31, %zmm16, %zmm13
	vmovaps	%zmm31, %zmm21
	vfmadd231ps	%zmm17, %zmm13, %zmm12
	vfmadd231ps	%zmm13, %zmm25, %zmm12
	vmovaps	%zmm26, %zmm20
	vfmadd213ps	%zmm23, %zmm12, %zmm20
	vfmadd213ps	%zmm24, %zmm12, %zmm20
	vfmadd213ps	%zmm29, %zmm12, %zmm20
	vfmadd213ps	%zmm30, %zmm12, %zmm20
	vbroadcastss	.LCPI3_11(%rip), %zmm13
	vfmsub213ps	%zmm13, %zmm12, %zmm20
	vfmadd213ps	%zmm13, %zmm12, %zmm20
	movq	%rdx, %rsi
	shlq	$11, %rsi
	vpslld	$23, 160(%rsp), %zmm12
	vpsubd	%zmm12, %zmm28, %zmm29
	vdivps	%zmm14, %zmm22, %zmm12
	movq	8(%rsp), %rdi
	addq	%rsi, %rdi
	vpslld	$23, %zmm16, %zmm14
	vpsubd	%zmm14, %zmm28, %zmm14
	vfmadd213ps	%zmm22, %zmm20, %zmm14
	vdivps	%zmm14, %zmm22, %zmm14
	movq	32(%rsp), %rbx
	vmulps	(%rbx,%rdi), %zmm12, %zmm12
	vaddps	%zmm13, %zmm18, %zmm16
	vdivps	%zmm16, %zmm18, %zmm16
	vpbroadcastd	.LCPI3_24(%rip), %zmm19
	vpternlogd	$248, 96(%rsp), %zmm19, %zmm16
	vmulps	%zmm16, %zmm14, %zmm14
	vaddps	%zmm14, %zmm12, %zmm12
	vmovups	%zmm12, 160(%rsp)
	vbroadcastss	.LCPI3_13(%rip), %zmm23
	vandps	%zmm23, %zmm12, %zmm14
	vbroadcastss	.LCPI3_14(%rip), %zmm25
	vminps	%zmm14, %zmm25, %zmm14
	vbroadcastss	.LCPI3_15(%rip), %zmm20
	vmovaps	%zmm20, %zmm16
	vfmsub213ps	%zmm31, %zmm14, %zmm16
	vpslld	$23, %zmm16, %zmm17
	vpaddd	%zmm27, %zmm17, %zmm17
	vaddps	%zmm31, %zmm16, %zmm16
	vbroadcastss	.LCPI3_16(%rip), %zmm12
	vfmadd231ps	%zmm12, %zmm16, %zmm14
	vbroadcastss	.LCPI3_17(%rip), %zmm19
	vfmadd231ps	%zmm16, %zmm19, %zmm14
	vmulps	%zmm14, %zmm14, %zmm16
	vbroadcastss	.LCPI3_19(%rip), %zmm24
	vmovaps	%zmm24, %zmm18
	vbroadcastss	.LCPI3_18(%rip), %zmm30
	vfmadd213ps	%zmm30, %zmm14, %zmm18
	vbroadcastss	.LCPI3_20(%rip), %zmm26
	vfmadd213ps	%zmm26, %zmm14, %zmm18
	vbroadcastss	.LCPI3_21(%rip), %zmm27
	vfmadd213ps	%zmm27, %zmm14, %zmm18
	vbroadcastss	.LCPI3_22(%rip), %zmm28
	vfmadd213ps	%zmm28, %zmm14, %zmm18
	vfmadd213ps	%zmm13, %zmm14, %zmm18
	vfmadd213ps	%zmm14, %zmm16, %zmm18
	vbroadcastss	.LCPI3_23(%rip), %zmm14
	vfnmadd213ps	%zmm14, %zmm17, %zmm14
	vfmadd231ps	%zmm18, %zmm17, %zmm14
	vaddps	%zmm13, %zmm14, %zmm16
	vdivps	%zmm16, %zmm14, %zmm14
	vmovups	%zmm14, 96(%rsp)
	vfmadd213ps	%zmm22, %zmm15, %zmm29
	vmovups	%zmm29, 288(%rsp)
	vaddps	12288(%rcx), %zmm11, %zmm11
	vbroadcastss	.LCPI3_0(%rip), %zmm14
	vminps	%zmm11, %zmm14, %zmm11
	vaddps	14336(%rcx), %zmm10, %zmm10
	vbroadcastss	.LCPI3_1(%rip), %zmm31
	vmaxps	%zmm11, %zmm31, %zmm11
	vandps	%zmm23, %zmm10, %zmm15
	vminps	%zmm15, %zmm25, %zmm15
	vmovaps	%zmm20, %zmm16
	vfmsub213ps	%zmm21, %zmm15, %zmm16
	vaddps	%zmm21, %zmm16, %zmm17
	vfmadd231ps	%zmm12, %zmm17, %zmm15
	vfmadd231ps	%zmm17, %zmm19, %zmm15
	vmulps	%zmm15, %zmm15, %zmm17
	vmovaps	%zmm24, %zmm18
	vmovaps	%zmm30, %zmm22
	vfmadd213ps	%zmm30, %zmm15, %zmm18
	vfmadd213ps	%zmm26, %zmm15, %zmm18
	vfmadd213ps	%zmm27, %zmm15, %zmm18
	vfmadd213ps	%zmm28, %zmm15, %zmm18
	vfmadd213ps	%zmm13, %zmm15, %zmm18
	vfmadd213ps	%zmm15, %zmm17, %zmm18
	vbroadcastss	.LCPI3_2(%rip), %zmm20
	vmovaps	%zmm20, %zmm15
	vfmsub213ps	%zmm21, %zmm11, %zmm15
	vaddps	%zmm21, %zmm15, %zmm17
	vbroadcastss	.LCPI3_4(%rip), %zmm23
	vfmadd231ps	%zmm23, %zmm17, %zmm11
	vbroadcastss	.LCPI3_5(%rip), %zmm25
	vfmadd231ps	%zmm17, %zmm25, %zmm11
	vbroadcastss	.LCPI3_7(%rip), %zmm26
	vmovaps	%zmm26, %zmm17
	vbroadcastss	.LCPI3_6(%rip), %zmm27
	vfmadd213ps	%zmm27, %zmm11, %zmm17
	vbroadcastss	.LCPI3_8(%rip), %zmm24
	vfmadd213ps	%zmm24, %zmm11, %zmm17
	vbroadcastss	.LCPI3_9(%rip), %zmm29
	vfmadd213ps	%zmm29, %zmm11, %zmm17
	vbroadcastss	.LCPI3_10(%rip), %zmm30
	vfmadd213ps	%zmm30, %zmm11, %zmm17
	vfmsub213ps	%zmm13, %zmm11, %zmm17
	vfmadd213ps	%zmm13, %zmm11, %zmm17
	vpslld	$23, %zmm15, %zmm11
	vpbroadcastd	.LCPI3_12(%rip), %zmm28
	vpsubd	%zmm11, %zmm28, %zmm11
	vbroadcastss	.LCPI3_12(%rip), %zmm19
	vfmadd213ps	%zmm19, %zmm17, %zmm11
	vaddps	8192(%rcx), %zmm9, %zmm9
	vminps	%zmm9, %zmm14, %zmm9
	vmaxps	%zmm9, %zmm31, %zmm9
	vpslld	$23, %zmm16, %zmm15
	vpbroadcastd	.LCPI3_11(%rip), %zmm14
	vpaddd	%zmm14, %zmm15, %zmm15
	vbroadcastss	.LCPI3_23(%rip), %zmm12
	vmovaps	%zmm12, %zmm16
	vfnmadd213ps	%zmm12, %zmm15, %zmm16
	vfmadd231ps	%zmm18, %zmm15, %zmm16
	vmovaps	%zmm20, %zmm15
	vfmsub213ps	%zmm21, %zmm9, %zmm15
	vaddps	%zmm21, %zmm15, %zmm17
	vfmadd231ps	%zmm23, %zmm17, %zmm9
	vfmadd231ps	%zmm17, %zmm25, %zmm9
	vmovaps	%zmm25, %zmm31
	vmovaps	%zmm26, %zmm17
	vfmadd213ps	%zmm27, %zmm9, %zmm17
	vfmadd213ps	%zmm24, %zmm9, %zmm17
	vfmadd213ps	%zmm29, %zmm9, %zmm17
	vfmadd213ps	%zmm30, %zmm9, %zmm17
	vfmsub213ps	%zmm13, %zmm9, %zmm17
	vfmadd213ps	%zmm13, %zmm9, %zmm17
	vmovaps	%zmm13, %zmm18
	vmovaps	%zmm19, %zmm26
	vdivps	288(%rsp), %zmm19, %zmm13
	vdivps	%zmm11, %zmm19, %zmm9
	vmulps	2048(%rbx,%rdi), %zmm9, %zmm9
	vpslld	$23, %zmm15, %zmm11
	vpsubd	%zmm11, %zmm28, %zmm11
	vfmadd213ps	%zmm19, %zmm17, %zmm11
	vdivps	%zmm11, %zmm19, %zmm11
	vaddps	%zmm18, %zmm16, %zmm15
	vdivps	%zmm15, %zmm16, %zmm15
	vpbroadcastd	.LCPI3_24(%rip), %zmm19
	vpternlogd	$248, %zmm19, %zmm10, %zmm15
	vmulps	%zmm15, %zmm11, %zmm10
	vaddps	%zmm10, %zmm9, %zmm9
	vandps	.LCPI3_13(%rip){1to16}, %zmm9, %zmm10
	vbroadcastss	.LCPI3_14(%rip), %zmm11
	vminps	%zmm10, %zmm11, %zmm10
	vbroadcastss	.LCPI3_15(%rip), %zmm11
	vfmsub213ps	%zmm21, %zmm10, %zmm11
	vaddps	%zmm21, %zmm11, %zmm15
	vfmadd231ps	.LCPI3_16(%rip){1to16}, %zmm15, %zmm10
	vfmadd231ps	.LCPI3_17(%rip){1to16}, %zmm15, %zmm10
	vmulps	%zmm10, %zmm10, %zmm15
	vbroadcastss	.LCPI3_19(%rip), %zmm16
	vfmadd213ps	%zmm22, %zmm10, %zmm16
	vfmadd213ps	.LCPI3_20(%rip){1to16}, %zmm10, %zmm16
	vfmadd213ps	.LCPI3_21(%rip){1to16}, %zmm10, %zmm16
	vfmadd213ps	.LCPI3_22(%rip){1to16}, %zmm10, %zmm16
	vfmadd213ps	%zmm18, %zmm10, %zmm16
	vfmadd213ps	%zmm10, %zmm15, %zmm16
	vmovdqu64	160(%rsp), %zmm15
	vmovdqu64	96(%rsp), %zmm10
	vpternlogd	$248, %zmm19, %zmm15, %zmm10
	vmulps	%zmm10, %zmm13, %zmm10
	leaq	(%r10,%rsi), %r8
	vmovups	%zmm10, (%rbx,%r8)
	movq	16(%rsp), %r9
	addq	%rsi, %r9
	vmovups	%zmm10, (%rbx,%r9)
	addq	1824(%rsp), %rsi
	vmovdqu64	%zmm15, (%rbx,%rsi)
	vaddps	10240(%rcx), %zmm8, %zmm8
	vbroadcastss	.LCPI3_0(%rip), %zmm13
	vminps	%zmm8, %zmm13, %zmm8
	vbroadcastss	.LCPI3_1(%rip), %zmm25
	vmaxps	%zmm8, %zmm25, %zmm8
	vpslld	$23, %zmm11, %zmm10
	vpaddd	%zmm14, %zmm10, %zmm10
	vmovaps	%zmm12, %zmm11
	vfnmadd213ps	%zmm12, %zmm10, %zmm11
	vfmadd231ps	%zmm16, %zmm10, %zmm11
	vmovaps	%zmm20, %zmm15
	vmovaps	%zmm20, %zmm10
	vfmsub213ps	%zmm21, %zmm8, %zmm10
	vaddps	%zmm21, %zmm10, %zmm12
	vfmadd231ps	%zmm23, %zmm12, %zmm8
	vfmadd231ps	%zmm12, %zmm31, %zmm8
	vbroadcastss	.LCPI3_7(%rip), %zmm16
	vmovaps	%zmm16, %zmm12
	vfmadd213ps	%zmm27, %zmm8, %zmm12
	vfmadd213ps	%zmm24, %zmm8, %zmm12
	vfmadd213ps	%zmm29, %zmm8, %zmm12
	vfmadd213ps	%zmm30, %zmm8, %zmm12
	vmovaps	%zmm18, %zmm20
	vfmsub213ps	%zmm18, %zmm8, %zmm12
	vfmadd213ps	%zmm18, %zmm8, %zmm12
	vpslld	$23, %zmm10, %zmm8
	vpsubd	%zmm8, %zmm28, %zmm8
	vmovdqa64	%zmm28, %zmm18
	vfmadd213ps	%zmm26, %zmm12, %zmm8
	vdivps	%zmm8, %zmm26, %zmm8
	vaddps	%zmm20, %zmm11, %zmm10
	vdivps	%zmm10, %zmm11, %zmm10
	vpternlogd	$248, %zmm19, %zmm9, %zmm10
	vmulps	%zmm10, %zmm8, %zmm8
	vmovups	%zmm8, 2048(%rbx,%r8)
	vmovups	%zmm8, 2048(%rbx,%r9)
	vmovups	%zmm9, 2048(%rbx,%rsi)
	vaddps	20480(%rcx), %zmm7, %zmm7
	vminps	%zmm7, %zmm13, %zmm7
	vmovaps	%zmm25, %zmm11
	vmaxps	%zmm7, %zmm25, %zmm7
	vmovaps	%zmm15, %zmm8
	vfmsub213ps	%zmm21, %zmm7, %zmm8
	vaddps	%zmm21, %zmm8, %zmm9
	vfmadd231ps	%zmm23, %zmm9, %zmm7
	vfmadd231ps	%zmm9, %zmm31, %zmm7
	vmovaps	%zmm31, %zmm25
	vmovaps	%zmm16, %zmm9
	vfmadd213ps	%zmm27, %zmm7, %zmm9
	vfmadd213ps	%zmm24, %zmm7, %zmm9
	vmovaps	%zmm24, %zmm28
	vfmadd213ps	%zmm29, %zmm7, %zmm9
	vmovaps	%zmm29, %zmm15
	vfmadd213ps	%zmm30, %zmm7, %zmm9
	vmovaps	%zmm30, %zmm29
	vfmsub213ps	%zmm20, %zmm7, %zmm9
	vfmadd213ps	%zmm20, %zmm7, %zmm9
	vpslld	$23, %zmm8, %zmm7
	vpsubd	%zmm7, %zmm18, %zmm7
	vmovdqa64	%zmm18, %zmm30
	vfmadd213ps	%zmm26, %zmm9, %zmm7
	vdivps	%zmm7, %zmm26, %zmm7
	vaddps	16384(%rcx), %zmm6, %zmm6
	vminps	%zmm6, %zmm13, %zmm6
	vmaxps	%zmm6, %zmm11, %zmm6
	vaddps	22528(%rcx), %zmm5, %zmm5
	vbroadcastss	.LCPI3_13(%rip), %zmm23
	vandps	%zmm23, %zmm5, %zmm8
	vbroadcastss	.LCPI3_14(%rip), %zmm31
	vminps	%zmm8, %zmm31, %zmm8
	vbroadcastss	.LCPI3_15(%rip), %zmm22
	vmovaps	%zmm22, %zmm9
	vfmsub213ps	%zmm21, %zmm8, %zmm9
	vaddps	%zmm21, %zmm9, %zmm10
	vbroadcastss	.LCPI3_16(%rip), %zmm17
	vfmadd231ps	%zmm17, %zmm10, %zmm8
	vbroadcastss	.LCPI3_17(%rip), %zmm24
	vfmadd231ps	%zmm10, %zmm24, %zmm8
	vmulps	%zmm8, %zmm8, %zmm10
	vbroadcastss	.LCPI3_19(%rip), %zmm12
	vmovaps	%zmm12, %zmm11
	vbroadcastss	.LCPI3_18(%rip), %zmm19
	vfmadd213ps	%zmm19, %zmm8, %zmm11
	vbroadcastss	.LCPI3_20(%rip), %zmm13
	vfmadd213ps	%zmm13, %zmm8, %zmm11
	vbroadcastss	.LCPI3_21(%rip), %zmm14
	vfmadd213ps	%zmm14, %zmm8, %zmm11
	vbroadcastss	.LCPI3_22(%rip), %zmm18
	vfmadd213ps	%zmm18, %zmm8, %zmm11
	vfmadd213ps	%zmm20, %zmm8, %zmm11
	vfmadd213ps	%zmm8, %zmm10, %zmm11
	vbroadcastss	.LCPI3_2(%rip), %zmm8
	vfmsub213ps	%zmm21, %zmm6, %zmm8
	vaddps	%zmm21, %zmm8, %zmm10
	vfmadd231ps	.LCPI3_4(%rip){1to16}, %zmm10, %zmm6
	vfmadd231ps	%zmm10, %zmm25, %zmm6
	vfmadd213ps	%zmm27, %zmm6, %zmm16
	vfmadd213ps	%zmm28, %zmm6, %zmm16
	vfmadd213ps	%zmm15, %zmm6, %zmm16
	vfmadd213ps	%zmm29, %zmm6, %zmm16
	vfmsub213ps	%zmm20, %zmm6, %zmm16
	vfmadd213ps	%zmm20, %zmm6, %zmm16
	vmulps	4096(%rbx,%rdi), %zmm7, %zmm6
	vpslld	$23, %zmm8, %zmm7
	vpsubd	%zmm7, %zmm30, %zmm7
	vfmadd213ps	%zmm26, %zmm16, %zmm7
	vdivps	%zmm7, %zmm26, %zmm7
	vpslld	$23, %zmm9, %zmm8
	vpbroadcastd	.LCPI3_11(%rip), %zmm15
	vpaddd	%zmm15, %zmm8, %zmm8
	vbroadcastss	.LCPI3_23(%rip), %zmm16
	vmovaps	%zmm16, %zmm9
	vfnmadd213ps	%zmm16, %zmm8, %zmm9
	vfmadd231ps	%zmm11, %zmm8, %zmm9
	vaddps	%zmm20, %zmm9, %zmm8
	vdivps	%zmm8, %zmm9, %zmm8
	vpternlogd	$248, .LCPI3_24(%rip){1to16}, %zmm5, %zmm8
	vmulps	%zmm8, %zmm7, %zmm5
	vaddps	%zmm5, %zmm6, %zmm25
	vandps	%zmm23, %zmm25, %zmm6
	vminps	%zmm6, %zmm31, %zmm6
	vmovaps	%zmm22, %zmm10
	vmovaps	%zmm22, %zmm7
	vfmsub213ps	%zmm21, %zmm6, %zmm7
	vpslld	$23, %zmm7, %zmm8
	vpaddd	%zmm15, %zmm8, %zmm8
	vaddps	%zmm21, %zmm7, %zmm7
	vfmadd231ps	%zmm17, %zmm7, %zmm6
	vmovaps	%zmm17, %zmm15
	vfmadd231ps	%zmm7, %zmm24, %zmm6
	vmovaps	%zmm24, %zmm22
	vmulps	%zmm6, %zmm6, %zmm7
	vmovaps	%zmm12, %zmm9
	vfmadd213ps	%zmm19, %zmm6, %zmm9
	vmovaps	%zmm19, %zmm27
	vfmadd213ps	%zmm13, %zmm6, %zmm9
	vmovaps	%zmm13, %zmm19
	vfmadd213ps	%zmm14, %zmm6, %zmm9
	vmovaps	%zmm14, %zmm5
	vfmadd213ps	%zmm18, %zmm6, %zmm9
	vmovaps	%zmm18, %zmm11
	vfmadd213ps	%zmm20, %zmm6, %zmm9
	vfmadd213ps	%zmm6, %zmm7, %zmm9
	vmovaps	%zmm16, %zmm14
	vfnmadd213ps	%zmm16, %zmm8, %zmm14
	vfmadd231ps	%zmm9, %zmm8, %zmm14
	vaddps	28672(%rcx), %zmm4, %zmm4
	vbroadcastss	.LCPI3_0(%rip), %zmm17
	vminps	%zmm4, %zmm17, %zmm4
	vbroadcastss	.LCPI3_1(%rip), %zmm16
	vmaxps	%zmm4, %zmm16, %zmm4
	vaddps	30720(%rcx), %zmm3, %zmm13
	vandps	%zmm23, %zmm13, %zmm7
	vminps	%zmm7, %zmm31, %zmm7
	vmovaps	%zmm10, %zmm8
	vmovaps	%zmm10, %zmm24
	vfmsub213ps	%zmm21, %zmm7, %zmm8
	vaddps	%zmm21, %zmm8, %zmm9
	vfmadd231ps	%zmm15, %zmm9, %zmm7
	vfmadd231ps	%zmm9, %zmm22, %zmm7
	vmovaps	%zmm22, %zmm31
	vmulps	%zmm7, %zmm7, %zmm9
	vmovaps	%zmm12, %zmm10
	vmovaps	%zmm27, %zmm18
	vfmadd213ps	%zmm27, %zmm7, %zmm10
	vfmadd213ps	%zmm19, %zmm7, %zmm10
	vfmadd213ps	%zmm5, %zmm7, %zmm10
	vfmadd213ps	%zmm11, %zmm7, %zmm10
	vfmadd213ps	%zmm20, %zmm7, %zmm10
	vfmadd213ps	%zmm7, %zmm9, %zmm10
	vbroadcastss	.LCPI3_2(%rip), %zmm19
	vmovaps	%zmm19, %zmm7
	vfmsub213ps	%zmm21, %zmm4, %zmm7
	vaddps	%zmm21, %zmm7, %zmm9
	vbroadcastss	.LCPI3_4(%rip), %zmm11
	vfmadd231ps	%zmm11, %zmm9, %zmm4
	vbroadcastss	.LCPI3_5(%rip), %zmm12
	vfmadd231ps	%zmm9, %zmm12, %zmm4
	vbroadcastss	.LCPI3_7(%rip), %zmm22
	vmovaps	%zmm22, %zmm9
	vbroadcastss	.LCPI3_6(%rip), %zmm27
	vfmadd213ps	%zmm27, %zmm4, %zmm9
	vmovaps	%zmm28, %zmm6
	vfmadd213ps	%zmm28, %zmm4, %zmm9
	vbroadcastss	.LCPI3_9(%rip), %zmm28
	vfmadd213ps	%zmm28, %zmm4, %zmm9
	vfmadd213ps	%zmm29, %zmm4, %zmm9
	vfmsub213ps	%zmm20, %zmm4, %zmm9
	vfmadd213ps	%zmm20, %zmm4, %zmm9
	vaddps	18432(%rcx), %zmm2, %zmm5
	vpslld	$23, %zmm7, %zmm4
	vpsubd	%zmm4, %zmm30, %zmm4
	vfmadd213ps	%zmm26, %zmm9, %zmm4
	vaddps	24576(%rcx), %zmm1, %zmm1
	vminps	%zmm1, %zmm17, %zmm1
	vmovaps	%zmm16, %zmm3
	vmaxps	%zmm1, %zmm16, %zmm1
	vpslld	$23, %zmm8, %zmm7
	vpbroadcastd	.LCPI3_11(%rip), %zmm16
	vpaddd	%zmm16, %zmm7, %zmm7
	vbroadcastss	.LCPI3_23(%rip), %zmm8
	vfnmadd213ps	%zmm8, %zmm7, %zmm8
	vfmadd231ps	%zmm10, %zmm7, %zmm8
	vmovaps	%zmm19, %zmm7
	vfmsub213ps	%zmm21, %zmm1, %zmm7
	vaddps	%zmm21, %zmm7, %zmm9
	vfmadd231ps	%zmm11, %zmm9, %zmm1
	vmovaps	%zmm11, %zmm10
	vfmadd231ps	%zmm9, %zmm12, %zmm1
	vmovaps	%zmm22, %zmm9
	vfmadd213ps	%zmm27, %zmm1, %zmm9
	vfmadd213ps	%zmm6, %zmm1, %zmm9
	vmovaps	%zmm6, %zmm11
	vfmadd213ps	%zmm28, %zmm1, %zmm9
	vfmadd213ps	%zmm29, %zmm1, %zmm9
	vfmsub213ps	%zmm20, %zmm1, %zmm9
	vfmadd213ps	%zmm20, %zmm1, %zmm9
	vminps	%zmm5, %zmm17, %zmm1
	vmaxps	%zmm1, %zmm3, %zmm2
	vmovaps	%zmm3, %zmm6
	vdivps	%zmm4, %zmm26, %zmm1
	vpslld	$23, %zmm7, %zmm4
	vpsubd	%zmm4, %zmm30, %zmm4
	vfmadd213ps	%zmm26, %zmm9, %zmm4
	vdivps	%zmm4, %zmm26, %zmm4
	vmulps	6144(%rbx,%rdi), %zmm1, %zmm1
	vaddps	%zmm20, %zmm8, %zmm7
	vdivps	%zmm7, %zmm8, %zmm7
	vpbroadcastd	.LCPI3_24(%rip), %zmm9
	vpternlogd	$248, %zmm9, %zmm13, %zmm7
	vmulps	%zmm7, %zmm4, %zmm3
	vaddps	%zmm3, %zmm1, %zmm1
	vandps	%zmm23, %zmm1, %zmm3
	vbroadcastss	.LCPI3_14(%rip), %zmm4
	vminps	%zmm3, %zmm4, %zmm3
	vfmsub213ps	%zmm21, %zmm3, %zmm24
	vaddps	%zmm21, %zmm24, %zmm7
	vfmadd231ps	%zmm15, %zmm7, %zmm3
	vfmadd231ps	%zmm7, %zmm31, %zmm3
	vmulps	%zmm3, %zmm3, %zmm7
	vbroadcastss	.LCPI3_19(%rip), %zmm8
	vfmadd213ps	%zmm18, %zmm3, %zmm8
	vfmadd213ps	.LCPI3_20(%rip){1to16}, %zmm3, %zmm8
	vfmadd213ps	.LCPI3_21(%rip){1to16}, %zmm3, %zmm8
	vfmadd213ps	.LCPI3_22(%rip){1to16}, %zmm3, %zmm8
	vfmadd213ps	%zmm20, %zmm3, %zmm8
	vfmadd213ps	%zmm3, %zmm7, %zmm8
	vmovaps	%zmm19, %zmm3
	vfmsub213ps	%zmm21, %zmm2, %zmm3
	vaddps	%zmm21, %zmm3, %zmm7
	vfmadd231ps	%zmm10, %zmm7, %zmm2
	vfmadd231ps	%zmm7, %zmm12, %zmm2
	vmovaps	%zmm22, %zmm7
	vfmadd213ps	%zmm27, %zmm2, %zmm7
	vfmadd213ps	%zmm11, %zmm2, %zmm7
	vfmadd213ps	%zmm28, %zmm2, %zmm7
	vfmadd213ps	%zmm29, %zmm2, %zmm7
	vfmsub213ps	%zmm20, %zmm2, %zmm7
	vfmadd213ps	%zmm20, %zmm2, %zmm7
	vpslld	$23, %zmm3, %zmm2
	vpsubd	%zmm2, %zmm30, %zmm2
	vfmadd213ps	%zmm26, %zmm7, %zmm2
	vaddps	%zmm20, %zmm14, %zmm3
	vdivps	%zmm3, %zmm14, %zmm3
	vdivps	%zmm2, %zmm26, %zmm2
	vpternlogd	$248, %zmm9, %zmm25, %zmm3
	vmulps	%zmm3, %zmm2, %zmm2
	vmovups	%zmm2, 4096(%rbx,%r8)
	vmovups	%zmm2, 4096(%rbx,%r9)
	vmovups	%zmm25, 4096(%rbx,%rsi)
	vaddps	26624(%rcx), %zmm0, %zmm0
	vminps	%zmm0, %zmm17, %zmm0
	vmaxps	%zmm0, %zmm6, %zmm0
	vpslld	$23, %zmm24, %zmm2
	vpaddd	%zmm16, %zmm2, %zmm2
	vbroadcastss	.LCPI3_23(%rip), %zmm3
	vfnmadd213ps	%zmm3, %zmm2, %zmm3
	vfmadd231ps	%zmm8, %zmm2, %zmm3
	vmovaps	%zmm19, %zmm2
	vfmsub213ps	%zmm21, %zmm0, %zmm2
	vaddps	%zmm21, %zmm2, %zmm4
	vfmadd231ps	%zmm10, %zmm4, %zmm0
	vfmadd231ps	%zmm4, %zmm12, %zmm0
	vmovaps	%zmm22, %zmm4
	vfmadd213ps	%zmm27, %zmm0, %zmm4
	vfmadd213ps	%zmm11, %zmm0, %zmm4
	vfmadd213ps	%zmm28, %zmm0, %zmm4
	vfmadd213ps	%zmm29, %zmm0, %zmm4
	vfmsub213ps	%zmm20, %zmm0, %zmm4
	vfmadd213ps	%zmm20, %zmm0, %zmm4
	vpslld	$23, %zmm2, %zmm0
	vpsubd	%zmm0, %zmm30, %zmm0
	vfmadd213ps	%zmm26, %zmm4, %zmm0
	vaddps	%zmm20, %zmm3, %zmm2
	vdivps	%zmm2, %zmm3, %zmm2
	vdivps	%zmm0, %zmm26, %zmm0
	vpternlogd	$248, %zmm9, %zmm1, %zmm2
	vmulps	%zmm2, %zmm0, %zmm0
	vmovups	%zmm0, 6144(%rbx,%r8)
	vmovups	%zmm0, 6144(%rbx,%r9)
	vmovups	%zmm1, 6144(%rbx,%rsi)
	addq	$4, %rdx
	addq	$8192, %rax
	cmpq	$16, %rdx
	jl	.LBB3_9
	movq	64(%rsp), %r15
	incq	%r15
	cmpq	$32, %r15
	jl	.LBB3_1
	jmp	.LBB3_13
.LBB3_2:
	movq	1848(%rsp), %rdi
	movq	%r11, %r12
	vzeroupper
	callq	safepoint
	movq	%r12, %r11
	movq	(%rsp), %r10
	testb	$1, %al
	je	.LBB3_4
	movb	$1, %al
	jmp	.LBB3_14
.LBB3_13:
	xorl	%eax, %eax
.LBB3_14:
	addq	$1768, %rsp
	popq	%rbx
	popq	%r12
	popq	%r13
	popq	%r14
	popq	%r15
	popq	%rbp
	vzeroupper
	retq
.Lfunc_end3:
	.size	kernel.k78, .Lfunc_end3-kernel.k78

	.globl	entry
	.p2align	4
	.type	entry,@function
entry:
	pushq	%rbp
	pushq	%r15
	pushq	%r14
	pushq	%r13
	pushq	%r12
	pushq	%rbx
	subq	$56, %rsp
	movq	%rsi, %r15
	movq	%rdi, %r14
	movq	32(%rdi), %rax
	movq	$134217728, 8(%rsp)
	movq	%rax, 16(%rsp)
	movq	$0, 24(%rsp)
	movq	24(%rdi), %rax
	movq	(%rax), %rcx
	movq	%rcx, (%rsp)
	incq	%rcx
	movq	%rcx, (%rax)
	movq	8(%rdi), %rax
	movq	%rax, 40(%rsp)
	movq	16(%rdi), %r13
	movq	24(%rdi), %rbp
	leaq	13107264(%rbp), %r12
	leaq	13140032(%rbp), %rbx
	movq	%r13, %rdi
	movq	%r12, %rsi
	movq	%r15, %rdx
	callq	kernel.k7
	movq	%r13, %rdi
	movq	%rbx, %rsi
	movq	%r15, %rdx
	callq	kernel.k7
	movq	(%r14), %rdi
	leaq	40960(%r13), %rsi
	leaq	32768(%r13), %rdx
	subq	$8, %rsp
	leaq	16(%rsp), %rax
	leaq	64(%rbp), %rcx
	movq	%rcx, 40(%rsp)
	leaq	64(%rbp), %rcx
	movq	%r15, 56(%rsp)
	movq	%r15, %r8
	movq	8(%rsp), %r9
	pushq	%rax
	callq	kernel.k22
	addq	$16, %rsp
	testb	$1, %al
	jne	.LBB4_10
	addq	$4235264, %r13
	movq	%r13, (%rsp)
	leaq	13205568(%rbp), %r13
	addq	$13172800, %rbp
	xorl	%r15d, %r15d
	.p2align	4
.LBB4_2:
	movq	%rbx, %r14
	movq	%r12, %rbx
	movq	%r12, %rdi
	movq	(%rsp), %rsi
	movq	32(%rsp), %rdx
	movq	%r14, %rcx
	movq	40(%rsp), %r8
	movq	%rbp, %r9
	leaq	8(%rsp), %rax
	pushq	%rax
	pushq	%r15
	pushq	64(%rsp)
	pushq	%r13
	callq	kernel.k78
	addq	$32, %rsp
	testb	$1, %al
	jne	.LBB4_10
	addq	$-134219728, 8(%rsp)
	js	.LBB4_5
.LBB4_4:
	incq	%r15
	movq	%rbp, %r12
	movq	%rbx, %rbp
	movq	%r13, %rbx
	movq	%r14, %r13
	cmpq	$100, %r15
	jl	.LBB4_2
	jmp	.LBB4_7
.LBB4_5:
	leaq	8(%rsp), %rdi
	callq	safepoint
	testb	$1, %al
	je	.LBB4_4
.LBB4_10:
	movq	$-3, %rax
	jmp	.LBB4_8
.LBB4_7:
	xorl	%eax, %eax
.LBB4_8:
	addq	$56, %rsp
	popq	%rbx
	popq	%r12
	popq	%r13
	popq	%r14
	popq	%r15
	popq	%rbp
	retq
.Lfunc_end4:
	.size	entry, .Lfunc_end4-entry

	.section	.rodata.cst32,"aM",@progbits,32
	.p2align	5, 0x0
.LCPI5_0:
	.quad	13238336
	.quad	100
	.quad	1
	.quad	16
	.text
	.globl	layout
	.p2align	4
	.type	layout,@function
layout:
	vmovaps	.LCPI5_0(%rip), %ymm0
	vmovups	%ymm0, (%rsi)
	movq	$512, 32(%rsi)
	xorl	%eax, %eax
	vzeroupper
	retq
.Lfunc_end5:
	.size	layout, .Lfunc_end5-layout

	.section	.rodata.cst4,"aM",@progbits,4
	.p2align	2, 0x0
.LCPI6_0:
	.long	0x41f00000
.LCPI6_1:
	.long	0xc2d20000
.LCPI6_2:
	.long	0xcb400000
.LCPI6_3:
	.long	0x3fb8aa3b
.LCPI6_4:
	.long	0xbf317218
.LCPI6_5:
	.long	0x3102e308
.LCPI6_6:
	.long	0x3ab529f8
.LCPI6_7:
	.long	0xbc091cc1
.LCPI6_8:
	.long	0x3d2aac55
.LCPI6_9:
	.long	0xbe2aaa49
.LCPI6_10:
	.long	0x3efffffe
.LCPI6_11:
	.long	0xbf800000
.LCPI6_12:
	.long	528482304
	.text
	.p2align	4
	.type	function.sigmoid.float32.x16,@function
function.sigmoid.float32.x16:
	vbroadcastss	.LCPI6_0(%rip), %zmm1
	vbroadcastss	.LCPI6_1(%rip), %zmm2
	vminps	%zmm0, %zmm1, %zmm0
	vmaxps	%zmm0, %zmm2, %zmm0
	vbroadcastss	.LCPI6_2(%rip), %zmm1
	vbroadcastss	.LCPI6_3(%rip), %zmm2
	vfmsub213ps	%zmm1, %zmm0, %zmm2
	vaddps	%zmm1, %zmm2, %zmm1
	vfmadd231ps	.LCPI6_4(%rip){1to16}, %zmm1, %zmm0
	vfmadd231ps	.LCPI6_5(%rip){1to16}, %zmm1, %zmm0
	vbroadcastss	.LCPI6_6(%rip), %zmm1
	vfmadd213ps	.LCPI6_7(%rip){1to16}, %zmm0, %zmm1
	vfmadd213ps	.LCPI6_8(%rip){1to16}, %zmm0, %zmm1
	vfmadd213ps	.LCPI6_9(%rip){1to16}, %zmm0, %zmm1
	vfmadd213ps	.LCPI6_10(%rip){1to16}, %zmm0, %zmm1
	vbroadcastss	.LCPI6_11(%rip), %zmm3
	vfmadd213ps	%zmm3, %zmm0, %zmm1
	vfmsub213ps	%zmm3, %zmm0, %zmm1
	vpslld	$23, %zmm2, %zmm0
	vpbroadcastd	.LCPI6_12(%rip), %zmm2
	vpsubd	%zmm0, %zmm2, %zmm0
	vbroadcastss	.LCPI6_12(%rip), %zmm2
	vfmadd213ps	%zmm2, %zmm1, %zmm0
	vdivps	%zmm0, %zmm2, %zmm0
	retq
.Lfunc_end6:
	.size	function.sigmoid.float32.x16, .Lfunc_end6-function.sigmoid.float32.x16

	.section	.rodata.cst4,"aM",@progbits,4
	.p2align	2, 0x0
.LCPI7_0:
	.long	0x7fffffff
.LCPI7_1:
	.long	0x41140000
.LCPI7_2:
	.long	0xcb400000
.LCPI7_3:
	.long	0x4038aa3b
.LCPI7_4:
	.long	1065353216
.LCPI7_5:
	.long	0xbeb17218
.LCPI7_6:
	.long	0x3082e308
.LCPI7_7:
	.long	0x3c4f0aa9
.LCPI7_8:
	.long	0x3d36a1b7
.LCPI7_9:
	.long	0x3e088981
.LCPI7_10:
	.long	0x3eaaaa78
.LCPI7_11:
	.long	0x3f2aaaaa
.LCPI7_12:
	.long	0xbf000000
.LCPI7_13:
	.long	2147483648
	.text
	.p2align	4
	.type	function.tanh.float32.x16,@function
function.tanh.float32.x16:
	vandps	.LCPI7_0(%rip){1to16}, %zmm0, %zmm1
	vbroadcastss	.LCPI7_1(%rip), %zmm2
	vminps	%zmm1, %zmm2, %zmm1
	vbroadcastss	.LCPI7_2(%rip), %zmm2
	vbroadcastss	.LCPI7_3(%rip), %zmm3
	vfmsub213ps	%zmm2, %zmm1, %zmm3
	vpslld	$23, %zmm3, %zmm4
	vpaddd	.LCPI7_4(%rip){1to16}, %zmm4, %zmm4
	vaddps	%zmm2, %zmm3, %zmm2
	vfmadd231ps	.LCPI7_5(%rip){1to16}, %zmm2, %zmm1
	vfmadd231ps	.LCPI7_6(%rip){1to16}, %zmm2, %zmm1
	vmulps	%zmm1, %zmm1, %zmm2
	vbroadcastss	.LCPI7_7(%rip), %zmm3
	vfmadd213ps	.LCPI7_8(%rip){1to16}, %zmm1, %zmm3
	vfmadd213ps	.LCPI7_9(%rip){1to16}, %zmm1, %zmm3
	vfmadd213ps	.LCPI7_10(%rip){1to16}, %zmm1, %zmm3
	vfmadd213ps	.LCPI7_11(%rip){1to16}, %zmm1, %zmm3
	vbroadcastss	.LCPI7_4(%rip), %zmm5
	vfmadd213ps	%zmm5, %zmm1, %zmm3
	vfmadd213ps	%zmm1, %zmm2, %zmm3
	vbroadcastss	.LCPI7_12(%rip), %zmm1
	vfnmadd213ps	%zmm1, %zmm4, %zmm1
	vfmadd231ps	%zmm3, %zmm4, %zmm1
	vaddps	%zmm5, %zmm1, %zmm2
	vdivps	%zmm2, %zmm1, %zmm1
	vpternlogd	$236, .LCPI7_13(%rip){1to16}, %zmm1, %zmm0
	retq
.Lfunc_end7:
	.size	function.tanh.float32.x16, .Lfunc_end7-function.tanh.float32.x16

	.type	nowhere,@object
	.section	.rodata,"a",@progbits
	.p2align	4, 0x0
nowhere:
	.zero	64
	.size	nowhere, 64

	.section	".note.GNU-stack","",@progbits

