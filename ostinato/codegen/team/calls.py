"""Thread 0: whether a call is shared, and what the last call tells about the next one."""

from __future__ import annotations

CALLS = """; The next calls are made alone, or fewer of them the next time.
define internal void @team_judge(i1 %is.bad) nounwind {
  %penalty = load i64, ptr @team_penalty
  %twice = shl i64 %penalty, 1
  %more = or i64 %twice, 1
  %is.most = icmp ugt i64 %more, MOST_ALONE
  %more.bounded = select i1 %is.most, i64 MOST_ALONE, i64 %more
  %less = lshr i64 %penalty, 1
  %penalty.next = select i1 %is.bad, i64 %more.bounded, i64 %less
  store i64 %penalty.next, ptr @team_penalty
  %alone.next = select i1 %is.bad, i64 %more.bounded, i64 0
  store i64 %alone.next, ptr @team_alone
  ret void
}

define internal i64 @team_call(
    ptr %buffers, ptr %symbols, i64 %call, ptr %record, i1 %patient
) nounwind {
entry:
  %round = alloca i64
  %count = load atomic i64, ptr @team_count acquire, align 8
  %is.team = icmp ugt i64 %count, 1
  br i1 %is.team, label %take, label %alone
take:
  %pair = cmpxchg ptr @team_taken, i64 0, i64 1 acq_rel monotonic
  %is.taken = extractvalue { i64, i1 } %pair, 1
  br i1 %is.taken, label %ask, label %alone
ask:
  %left = load i64, ptr @team_alone
  %is.fine = icmp eq i64 %left, 0
  br i1 %is.fine, label %look, label %spare
look:
  %start = call i64 @clock()
  %resume = load i64, ptr @team_resume
  %is.early = icmp ult i64 %start, %resume
  br i1 %is.early, label %leave.alone, label %consider
spare:
  %left.next = sub i64 %left, 1
  store i64 %left.next, ptr @team_alone
  br label %leave.alone
leave.alone:
  store atomic i64 0, ptr @team_taken release, align 8
  br label %alone
alone:
  %code.alone = call i64 @share(
      ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 0, i64 1, ptr %record, ptr null)
  ret i64 %code.alone
consider:
  %sleeping = load atomic i64, ptr @team_sleeping seq_cst, align 8
  %is.asleep = icmp ne i64 %sleeping, 0
  br i1 %is.asleep, label %asleep, label %together
asleep:
  %woke = load i64, ptr @team_woke
  %took.last = load i64, ptr @team_took
  %is.woken = icmp ne i64 %woke, 0
  br i1 %is.woken, label %expected, label %quiet
expected:
  %since = sub i64 %start, %woke
  %patience = mul i64 %took.last, PATIENCE
  %is.vain = icmp ugt i64 %since, %patience
  br i1 %is.vain, label %in.vain, label %by.itself
in.vain:
  store i64 0, ptr @team_woke
  call void @team_judge(i1 1)
  br label %by.itself
quiet:
  br i1 %patient, label %together, label %hurried
hurried:
  %ended = load i64, ptr @team_ended
  %gap = sub i64 %start, %ended
  %is.soon = icmp ult i64 %gap, %took.last
  br i1 %is.soon, label %rouse, label %by.itself
rouse:
  store i64 %start, ptr @team_woke
  call void @team_publish(i1 1)
  br label %by.itself
by.itself:
  %code.itself = call i64 @share(
      ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 0, i64 1, ptr %record, ptr null)
  %end.itself = call i64 @clock()
  br label %leave
together:
  %symbols.at = getelementptr { ptr, ptr, i64, i64, i64, i64 }, ptr @team_job, i64 0, i32 1
  %call.at = getelementptr { ptr, ptr, i64, i64, i64, i64 }, ptr @team_job, i64 0, i32 2
  %number.at = getelementptr { ptr, ptr, i64, i64, i64, i64 }, ptr @team_job, i64 0, i32 3
  %mode.at = getelementptr { ptr, ptr, i64, i64, i64, i64 }, ptr @team_job, i64 0, i32 4
  %published = load atomic i64, ptr @team_published monotonic, align 8
  %number = add i64 %published, 1
  store ptr %buffers, ptr @team_job
  store ptr %symbols, ptr %symbols.at
  store i64 %call, ptr %call.at
  store i64 %number, ptr %number.at
  %mode = call i64 @get_mode()
  store i64 %mode, ptr %mode.at
  store i64 0, ptr @team_late
  store i64 0, ptr %round
  store atomic i64 0, ptr @team_arrived release, align 8
  store atomic i64 0, ptr @team_left release, align 8
  store atomic i64 0, ptr @team_stop release, align 8
  store atomic i64 0, ptr @team_present release, align 8
  call void @team_publish(i1 1)
  %bits = shl i64 1, %count
  %all = sub i64 %bits, 2
  %rounds = select i1 %is.asleep, i64 WAKE_SPINS, i64 SIGN_SPINS
  %present = call i64 @team_gather(i64 %all, i64 %rounds)
  %others = call i64 @llvm.ctpop.i64(i64 %present)
  %several = add i64 %others, 1
  %is.one = icmp eq i64 %others, 0
  %one = zext i1 %is.one to i64
  %shared = load i64, ptr @team_shared
  %shared.more = add i64 %shared, 1
  %shared.next = sub i64 %shared.more, %one
  store i64 %shared.next, ptr @team_shared
  %is.unheard = and i1 %is.asleep, %is.one
  %woke.next = select i1 %is.unheard, i64 %start, i64 0
  store i64 %woke.next, ptr @team_woke
  %begun = call i64 @clock()
  %code.own = call i64 @share(
      ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 0, i64 %several,
      ptr %record, ptr @team_stop)
  %code = call i64 @team_join(i64 %code.own, i64 %others, ptr %record)
  %end = call i64 @clock()
  %work = sub i64 %end, %begun
  %third = udiv i64 %work, 3
  %late = load i64, ptr @team_late
  %is.late = icmp ugt i64 %late, %third
  br i1 %is.one, label %leave, label %judge
judge:
  call void @team_judge(i1 %is.late)
  %lost = mul i64 %late, LOSSES
  %regained = add i64 %end, %lost
  %resume.next = select i1 %is.late, i64 %regained, i64 0
  store i64 %resume.next, ptr @team_resume
  br label %leave
leave:
  %code.any = phi i64 [ %code.itself, %by.itself ], [ %code, %together ], [ %code, %judge ]
  %end.any = phi i64 [ %end.itself, %by.itself ], [ %end, %together ], [ %end, %judge ]
  %took = sub i64 %end.any, %start
  store i64 %took, ptr @team_took
  store i64 %end.any, ptr @team_ended
  store atomic i64 0, ptr @team_taken release, align 8
  ret i64 %code.any
}

"""
